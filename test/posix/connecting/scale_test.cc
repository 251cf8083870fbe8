// Many connections, one after the other and at once.
#include <sys/epoll.h>
#include <sys/resource.h>

#include <cstdio>

#include "test/posix/support.h"

namespace posix_test {
namespace {

TEST_CASE("scale: 2000 short connections") {
  Listener listener = Listen(AF_INET, 128, SOCK_NONBLOCK);
  auto server = Async([&] {
    for (int i = 0; i < 2000;) {
      if (!WaitFor(listener.fd, POLLIN)) return i;
      Fd fd(accept(listener.fd, nullptr, nullptr));
      if (fd < 0) continue;
      if (ReceiveExactly(fd, 7) != "request") return i;
      if (!SendAll(fd, "reply")) return i;
      ++i;
    }
    return 2000;
  });
  for (int i = 0; i < 2000; ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    REQUIRE(SendAll(client, "request"));
    REQUIRE(ReceiveToEnd(client) == "reply");
  }
  REQUIRE(Get(server) == 2000);
}

TEST_CASE("scale: 500 idle connections and then one wakes") {
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  Listener listener = Listen();
  Fd ep(epoll_create1(0));
  std::vector<Pair> pairs;
  for (uint64_t i = 0; i < 500; ++i) {
    pairs.push_back(ConnectTo(listener));
    epoll_event event{EPOLLIN, {}};
    event.data.u64 = i;
    REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pairs.back().server, &event) == 0);
  }
  epoll_event events[8];
  REQUIRE(epoll_wait(ep, events, 8, kQuietMs) == 0);
  for (const uint64_t i : {499u, 0u, 250u}) {
    REQUIRE(SendAll(pairs[i].client, "wake"));
    REQUIRE(epoll_wait(ep, events, 8, kPatienceMs) == 1);
    REQUIRE(events[0].data.u64 == i);
    REQUIRE(ReceiveExactly(pairs[i].server, 4) == "wake");
    REQUIRE(epoll_wait(ep, events, 8, 0) == 0);
  }
  for (Pair& pair : pairs) pair.client.reset();
  for (Pair& pair : pairs) REQUIRE(ReceiveToEnd(pair.server).empty());
}

TEST_CASE("scale: a connection is opened and closed without a word 500 times") {
  Listener listener = Listen();
  for (int i = 0; i < 500; ++i) {
    Pair pair = ConnectTo(listener);
    if (i % 2 == 0)
      pair.client.reset();
    else
      pair.server.reset();
  }
}

// Not run by itself: the runner starts it, looks at sdpstat while it holds its connections, then closes its
// standard input.
TEST_CASE("hold: two connections with traffic until standard input ends", "[.hold]") {
  Listener listener = Listen();
  Pair one = ConnectTo(listener), two = ConnectTo(listener);
  const std::string data = Pattern(3'000'000);
  auto receiver = Async([&] { return ReceiveExactly(one.server, data.size()); });
  REQUIRE(SendAll(one.client, data));
  REQUIRE(Get(receiver) == data);
  REQUIRE(SendAll(two.server, "little"));
  REQUIRE(ReceiveExactly(two.client, 6) == "little");
  printf("holding %s\n", listener.address.ToString().c_str());
  fflush(stdout);
  char c;
  while (read(0, &c, 1) > 0) {
  }
}

}  // namespace
}  // namespace posix_test
