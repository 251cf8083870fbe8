// Sockets that no library in between knows, made by bare system calls: the oracle beside the sockets under
// test, where what TCP answers is written down nowhere.
#ifndef SDP_TEST_POSIX_TWINS_H_
#define SDP_TEST_POSIX_TWINS_H_

#include <sys/syscall.h>

#include <utility>

#include "test/posix/support.h"

namespace posix_test {

class BareFd {
 public:
  explicit BareFd(long fd = -1) : fd_(static_cast<int>(fd)) {}
  BareFd(BareFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  BareFd& operator=(BareFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~BareFd() {
    if (fd_ >= 0) syscall(SYS_close, fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct BarePair {
  BareFd listener, client, server;
};

inline BareFd BareSocket(int family) {
  BareFd fd(syscall(SYS_socket, family, SOCK_STREAM, 0));
  REQUIRE(fd.get() >= 0);
  return fd;
}

inline BareFd BareListener(int family, BareFd fd) {
  Address address = Loopback(family);
  REQUIRE(syscall(SYS_bind, fd.get(), address.get(), address.length) == 0);
  REQUIRE(syscall(SYS_listen, fd.get(), 8) == 0);
  return fd;
}

inline BarePair BareConnection(int family, BareFd listening_socket) {
  BarePair pair;
  pair.listener = BareListener(family, std::move(listening_socket));
  Address address;
  REQUIRE(syscall(SYS_getsockname, pair.listener.get(), address.get(), &address.length) == 0);
  pair.client = BareSocket(family);
  REQUIRE(syscall(SYS_connect, pair.client.get(), address.get(), address.length) == 0);
  pair.server = BareFd(syscall(SYS_accept, pair.listener.get(), nullptr, nullptr));
  REQUIRE(pair.server.get() >= 0);
  return pair;
}

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_TWINS_H_
