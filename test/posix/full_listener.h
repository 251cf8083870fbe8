#ifndef SDP_TEST_POSIX_FULL_LISTENER_H_
#define SDP_TEST_POSIX_FULL_LISTENER_H_

#include <vector>

#include "test/posix/support.h"

namespace posix_test {

// A listener whose backlog is full: connects to it sleep until Open().
struct FullListener {
  Listener listener = Listen(AF_INET, 0);
  std::vector<Fd> fillers;

  // Full is what keeps two in a row waiting: one may just be slow.
  FullListener() {
    for (int late = 0; late < 2;) {
      REQUIRE(fillers.size() < 20);
      fillers.push_back(TcpSocket(AF_INET, SOCK_NONBLOCK));
      REQUIRE_ERRNO(connect(fillers.back(), listener.address.get(), listener.address.length), EINPROGRESS);
      late = WaitFor(fillers.back(), POLLOUT, 300) ? 0 : late + 1;
    }
    SetNonblocking(listener.fd);
  }
  int Connect(int fd) { return connect(fd, listener.address.get(), listener.address.length); }
  // Accepts whatever comes until `fd` is connected.
  bool Open(int fd) {
    std::vector<Fd> accepted;
    return Eventually([&] {
      accepted.emplace_back(accept(listener.fd, nullptr, nullptr));
      return (PollOne(fd, POLLOUT, 1) & (POLLOUT | POLLHUP)) == POLLOUT;
    });
  }
};

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_FULL_LISTENER_H_
