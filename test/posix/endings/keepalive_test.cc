// Keepalive is a timer of the kernel's on the connection itself. What it finds: dead_peer_test.cc.
#include <netinet/tcp.h>

#include "test/posix/kernel_timer.h"

namespace posix_test {
namespace {

TEST_CASE("keepalive: switched on and off, it is the kernel's timer of the connection") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "x", 1, 0) == 1);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  REQUIRE(Eventually([&] { return KernelTimerOf(pair.client) == kNoTimer; }));
  SetOption(pair.client, IPPROTO_TCP, TCP_KEEPIDLE, 1000);
  SetOption(pair.client, SOL_SOCKET, SO_KEEPALIVE, 1);
  REQUIRE(Eventually([&] { return KernelTimerOf(pair.client) == kKeepaliveTimer; }));
  REQUIRE(KernelTimerOf(pair.server) == kNoTimer);
  SetOption(pair.client, SOL_SOCKET, SO_KEEPALIVE, 0);
  REQUIRE(Eventually([&] { return KernelTimerOf(pair.client) == kNoTimer; }));
}

TEST_CASE("keepalive: set before connect and before listen it holds for the connection") {
  Listener listener = Listen();
  SetOption(listener.fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(listener.fd, IPPROTO_TCP, TCP_KEEPIDLE, 1000);
  SetOption(listener.fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  Fd client(socket(AF_INET, SOCK_STREAM, 0));
  SetOption(client, SOL_SOCKET, SO_KEEPALIVE, 1);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server.get() >= 0);
  REQUIRE(GetOption(server, IPPROTO_TCP, TCP_KEEPIDLE) == 1000);
  REQUIRE(GetOption(server, IPPROTO_TCP, TCP_KEEPCNT) == 3);
  REQUIRE(Eventually([&] { return KernelTimerOf(client) == kKeepaliveTimer; }));
  REQUIRE(Eventually([&] { return KernelTimerOf(server) == kKeepaliveTimer; }));
}

TEST_CASE("keepalive: short times do no harm to a living connection") {
  Pair pair = MakePair();
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 1);
    SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  }
  // Longer than a probe and the time for its answer: nothing is to be read meanwhile.
  REQUIRE((PollOne(pair.server, POLLIN, 2500) & (POLLIN | POLLERR | POLLHUP)) == 0);
  REQUIRE(send(pair.client, "alive", 5, 0) == 5);
  REQUIRE(ReceiveExactly(pair.server, 5) == "alive");
}

}  // namespace
}  // namespace posix_test
