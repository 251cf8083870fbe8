// In which order clients of a listener that processes share are accepted: as TCP's, that in which they have
// connected.
#include <netinet/tcp.h>

#include <algorithm>

#include "test/posix/listening/backlog_support.h"
#include "test/posix/processes.h"

namespace posix_test {
namespace {

size_t Waiting(int listener) {
  tcp_info info{};
  socklen_t length = sizeof info;
  REQUIRE(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
  return info.tcpi_unacked;
}

// The second comes while the process waits, which the first one did not.
TEST_CASE("backlog: who was there before a process waits is accepted before who comes then") {
  constexpr int kRounds = 5;
  Listener listener = Listen();
  Pipe go, told;
  const pid_t pid = Fork([&] {
    listener.fd.reset();
    go.out.reset();
    for (int round = 0; round < kRounds; ++round) {
      Fd clients[2];
      for (const int i : {0, 1}) {
        clients[i] = Fd(socket(AF_INET, SOCK_STREAM, 0));
        if (!go.Hear() || connect(clients[i], listener.address.get(), listener.address.length) != 0) return 1;
        if (!SendAll(clients[i], i == 0 ? "first" : "later") || write(told.out, "x", 1) != 1) return 2;
      }
      if (!go.Hear()) return 3;
    }
    return 0;
  });
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    go.Tell();
    REQUIRE(told.Hear());
    REQUIRE(HasWaiting(listener.fd, 1));
    go.Tell();
    REQUIRE(Eventually([&] { return PollOne(listener.fd, POLLIN, 0) != 0 && Waiting(listener.fd) == 2; }));
    Fd servers[2];
    for (Fd& server : servers) server.reset(accept(listener.fd, nullptr, nullptr));
    REQUIRE(ReceiveExactly(servers[0], 5) == "first");
    REQUIRE(ReceiveExactly(servers[1], 5) == "later");
    REQUIRE(told.Hear());
    go.Tell();
  }
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// Whoever takes them on may have no room for all in what the processes have in common.
TEST_CASE("backlog: of many who wait, those who have come last are accepted last") {
  constexpr size_t kCrowd = 200, kBefore = 60, kLater = 10;
  Listener listener = Listen(AF_INET, 256);
  REQUIRE(ExitedWith(Reap(Fork([] { return 0; })), 0));  // it has had the listener, too
  std::vector<Fd> clients = StartClients(listener, kCrowd);
  for (const Fd& client : clients) REQUIRE(Connected(client));
  std::vector<std::string> accepted, later;
  std::vector<Fd> servers;
  const auto accept_up_to = [&](size_t count) {
    while (servers.size() < count) {
      Address peer;
      servers.emplace_back(accept(listener.fd, peer.get(), &peer.length));
      REQUIRE(servers.back() >= 0);
      accepted.push_back(peer.ToString());
    }
  };
  accept_up_to(kBefore);
  for (size_t i = 0; i < kLater; ++i) {
    clients.push_back(TcpSocket());
    REQUIRE(connect(clients.back(), listener.address.get(), listener.address.length) == 0);
    later.push_back(LocalOf(clients.back()).ToString());
  }
  REQUIRE(PollOne(clients.back(), POLLIN, kQuietMs) == 0);  // meanwhile there is room
  accept_up_to(clients.size());
  REQUIRE(std::equal(later.begin(), later.end(), accepted.begin() + kCrowd));
}

}  // namespace
}  // namespace posix_test
