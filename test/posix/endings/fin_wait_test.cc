// TCP_LINGER2: how long a connection that is closed here waits for the peer to close it, too (FIN_WAIT_2).
#include <netinet/tcp.h>

#include "test/posix/support.h"

namespace posix_test {
namespace {

bool IsInFinWait2(int fd) {
  return Eventually([fd] {
    tcp_info info{};
    socklen_t length = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_FIN_WAIT2;
  });
}

TEST_CASE("fin wait: below zero, a close that has nothing to wait for but the peer resets the connection",
          "[abort]") {
  const bool shut_down_first = GENERATE(true, false);
  Pair pair = MakePair();
  SetOption(pair.client, IPPROTO_TCP, TCP_LINGER2, -1);
  REQUIRE(SendAll(pair.client, "last words"));
  if (shut_down_first) {
    REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
    REQUIRE(IsInFinWait2(pair.client));
  }
  REQUIRE(ReceiveExactly(pair.server, 10) == "last words");
  char c;
  if (shut_down_first) REQUIRE(recv(pair.server, &c, 1, 0) == 0);
  pair.client.reset();
  if (shut_down_first) {
    REQUIRE((PollOne(pair.server, 0) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
    REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == EPIPE);
  }
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
}

// The names of the connection are its own until it is over.
TEST_CASE("fin wait: its time is what was set") {
  const int seconds = GENERATE(1, -1);
  const bool on_listener = GENERATE(false, true);
  Listener listener = Listen();
  SetOption(listener.fd, IPPROTO_TCP, TCP_LINGER2, seconds);
  // By bind() the port is this socket's alone: one that connect() chooses may be that of others, too.
  Pair pair{.client = TcpSocket(), .server = {}};
  Address any_port = Loopback(AF_INET);
  REQUIRE(bind(pair.client, any_port.get(), any_port.length) == 0);
  REQUIRE(connect(pair.client, listener.address.get(), listener.address.length) == 0);
  pair.server = Fd(accept(listener.fd, nullptr, nullptr));
  REQUIRE(pair.server >= 0);
  listener.fd.reset();
  Fd& closes = on_listener ? pair.server : pair.client;
  if (!on_listener) SetOption(pair.client, IPPROTO_TCP, TCP_LINGER2, seconds);
  REQUIRE(GetOption(closes, IPPROTO_TCP, TCP_LINGER2) == seconds);
  Address own = LocalOf(closes);
  closes.reset();
  const Stopwatch watch;
  REQUIRE(Eventually([&] {
    Fd next = TcpSocket();
    return bind(next, own.get(), own.length) == 0;
  }));
  REQUIRE(watch.ms() < 15'000);
}

TEST_CASE("fin wait: acknowledgements are quick unless that is switched off") {
  Pair pair = MakePair();
  REQUIRE(GetOption(pair.client, IPPROTO_TCP, TCP_QUICKACK) == 1);
  REQUIRE(GetOption(pair.server, IPPROTO_TCP, TCP_QUICKACK) == 1);
  SetOption(pair.client, IPPROTO_TCP, TCP_QUICKACK, 0);
  REQUIRE(GetOption(pair.client, IPPROTO_TCP, TCP_QUICKACK) == 0);
  SetOption(pair.client, IPPROTO_TCP, TCP_QUICKACK, 1);
  REQUIRE(GetOption(pair.client, IPPROTO_TCP, TCP_QUICKACK) == 1);
}

}  // namespace
}  // namespace posix_test
