#include "test/verbs/link_pair.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "core/base/check.h"

namespace sdp::iwarp::test {

Fd& Fd::operator=(Fd&& other) noexcept {
  Close();
  value = std::exchange(other.value, -1);
  return *this;
}
Fd::~Fd() { Close(); }
void Fd::Close() {
  if (value >= 0) ::close(std::exchange(value, -1));
}

std::array<Fd, 2> LoopbackPair(bool blocking) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  SDP_CHECK(::bind(listener.value, reinterpret_cast<sockaddr*>(&address), length) == 0);
  SDP_CHECK(::listen(listener.value, 1) == 0);
  SDP_CHECK(::getsockname(listener.value, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  std::array<Fd, 2> pair;
  pair[0] = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SDP_CHECK(::connect(pair[0].value, reinterpret_cast<sockaddr*>(&address), length) == 0);
  pair[1] = Fd(::accept4(listener.value, nullptr, nullptr, SOCK_CLOEXEC));
  SDP_CHECK(pair[1].value >= 0);
  for (const Fd& fd : pair) {
    const int on = 1;
    ::setsockopt(fd.value, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!blocking) ::fcntl(fd.value, F_SETFL, O_NONBLOCK);
  }
  return pair;
}

Time Now() {
  return Time(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

}  // namespace sdp::iwarp::test
