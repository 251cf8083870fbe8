// Where the small programs listen and connect: a port of 127.0.0.1, or the path of a Unix socket.
//
// Each function ends the program with a message if a call fails.
#ifndef SDP_TEST_PROGRAMS_PLACES_H_
#define SDP_TEST_PROGRAMS_PLACES_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace programs_test {

[[noreturn]] inline void Fail(const char* what) {
  perror(what);
  _exit(1);
}

// `place` is a port, or a path with a slash in it.
class Place {
 public:
  explicit Place(const char* place) {
    if (strchr(place, '/') != nullptr) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      snprintf(address.sun_path, sizeof address.sun_path, "%s", place);
      Keep(address);
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(atoi(place)));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      Keep(address);
    }
  }

  // An address that the kernel chooses at Listen(), of AF_INET or AF_UNIX.
  explicit Place(sa_family_t family) : Place("0") {
    if (family != AF_UNIX) return;
    address_.ss_family = AF_UNIX;
    length_ = sizeof family;
  }

  [[nodiscard]] int Connect() const {
    const int fd = Socket();
    if (connect(fd, address(), length_) != 0) Fail("connect");
    return fd;
  }

  [[nodiscard]] int Listen() {
    const int fd = Socket();
    const int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, address(), length_) != 0) Fail("bind");
    if (listen(fd, 1024) != 0) Fail("listen");
    length_ = sizeof address_;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address_), &length_) != 0) Fail("getsockname");
    return fd;
  }

 private:
  template <typename Address>
  void Keep(const Address& address) {
    memcpy(&address_, &address, sizeof address);
    length_ = sizeof address;
  }
  [[nodiscard]] const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }
  [[nodiscard]] int Socket() const {
    const int fd = socket(address_.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) Fail("socket");
    return fd;
  }

  sockaddr_storage address_{};
  socklen_t length_ = 0;
};

}  // namespace programs_test

#endif  // SDP_TEST_PROGRAMS_PLACES_H_
