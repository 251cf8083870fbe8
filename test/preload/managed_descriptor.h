// A real descriptor with a FakeSocket behind it.
#ifndef SDP_TEST_PRELOAD_MANAGED_DESCRIPTOR_H_
#define SDP_TEST_PRELOAD_MANAGED_DESCRIPTOR_H_

#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "preload/startup.h"
#include "test/preload/fake_rooms.h"

namespace sdp::preload {

class ManagedDescriptor {
 public:
  ManagedDescriptor() {
    EnsureStarted();
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) throw std::runtime_error("socketpair");
    fd = pair[0];
    peer = pair[1];
    FdTable::Set(fd, socket);
    fake_readiness() = {};
  }
  ~ManagedDescriptor() {
    FdTable::Remove(fd);
    ::close(fd);
    ::close(peer);
    socket->Unref();
  }

  int fd;
  int peer;  // of the kernel's connection, which FakeSocket does not use
  FakeSocket* const socket = new FakeSocket;
};

using Calls = std::vector<std::string>;

}  // namespace sdp::preload

#endif  // SDP_TEST_PRELOAD_MANAGED_DESCRIPTOR_H_
