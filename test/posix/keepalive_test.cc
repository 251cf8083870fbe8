// Keepalive is a timer of the kernel's on the connection itself.
#include <netinet/tcp.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "test/posix/support.h"

namespace posix_test {
namespace {

// The timer that /proc/net/tcp shows for an IPv4 connection: 0 none, 2 keepalive; -1: no such connection.
int TimerOf(int fd) {
  struct stat status {};
  REQUIRE(fstat(fd, &status) == 0);
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string skipped, timer;
    uint64_t inode = 0;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    fields >> timer >> skipped >> skipped >> skipped >> inode;
    if (inode == status.st_ino) return std::stoi(timer.substr(0, 2), nullptr, 16);
  }
  return -1;
}

constexpr int kNone = 0, kKeepalive = 2;

TEST_CASE("keepalive: switched on and off, it is the kernel's timer of the connection") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "x", 1, 0) == 1);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  REQUIRE(Eventually([&] { return TimerOf(pair.client) == kNone; }));
  SetOption(pair.client, IPPROTO_TCP, TCP_KEEPIDLE, 1000);
  SetOption(pair.client, SOL_SOCKET, SO_KEEPALIVE, 1);
  REQUIRE(Eventually([&] { return TimerOf(pair.client) == kKeepalive; }));
  REQUIRE(TimerOf(pair.server) == kNone);
  SetOption(pair.client, SOL_SOCKET, SO_KEEPALIVE, 0);
  REQUIRE(Eventually([&] { return TimerOf(pair.client) == kNone; }));
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
  REQUIRE(Eventually([&] { return TimerOf(client) == kKeepalive; }));
  REQUIRE(Eventually([&] { return TimerOf(server) == kKeepalive; }));
}

// A peer that does not answer any more is not simulated here: the kernel resets such a connection by itself.
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
