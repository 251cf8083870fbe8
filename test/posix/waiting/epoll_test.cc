// epoll: what it reports, when, and what it answers to misuse.
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "test/posix/waiting/epoll_support.h"

namespace posix_test {
namespace {

TEST_CASE("epoll: with room for one event, a socket that is always ready leaves the others their turns") {
  constexpr int kWaits = 400;
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLOUT, 0);
  std::vector<Fd> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back(eventfd(1, 0));
    ep.Add(others.back(), EPOLLIN, static_cast<uint64_t>(i) + 1);
  }
  std::map<uint64_t, int> told;
  for (int i = 0; i < kWaits; ++i) {
    epoll_event event;
    REQUIRE(epoll_wait(ep.fd(), &event, 1, kPatienceMs) == 1);
    ++told[event.data.u64];
    if (i % 8 == 0) {  // the link is busy
      REQUIRE(SendAll(pair.client, "x"));
      REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    }
  }
  for (uint64_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    CHECK(told[i] >= kWaits / 16);
  }
}

TEST_CASE("epoll: level-triggered repeats until drained") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN, 7);
  REQUIRE(ep.Quiet());
  REQUIRE(SendAll(pair.client, "abc"));
  REQUIRE(ep.Wait() == Events{{7, EPOLLIN}});
  REQUIRE(ep.Wait() == Events{{7, EPOLLIN}});
  REQUIRE(ReceiveExactly(pair.server, 1) == "a");
  REQUIRE(ep.Wait() == Events{{7, EPOLLIN}});
  REQUIRE(ReceiveExactly(pair.server, 2) == "bc");
  REQUIRE(ep.Quiet());
  ep.Mod(pair.server, EPOLLIN | EPOLLOUT, 8);
  REQUIRE(ep.Wait() == Events{{8, EPOLLOUT}});
  REQUIRE(ep.Wait() == Events{{8, EPOLLOUT}});
  ep.Mod(pair.server, 0, 9);
  REQUIRE(SendAll(pair.client, "d"));
  REQUIRE(ep.Quiet());
  ep.Mod(pair.server, EPOLLIN, 10);
  REQUIRE(ep.Wait() == Events{{10, EPOLLIN}});
}

// Over a link that is memory, waits and reads take short cuts when nothing rare has happened for a while.
TEST_CASE("epoll: level-triggered, each wait tells of what a read has left, however often that was so") {
  Pair pair = MakePair();
  Pair other = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN, 1);
  ep.Add(other.server, EPOLLIN, 2);
  SetNonblocking(pair.server);
  for (size_t round = 0; round < 400; ++round) {
    INFO("round " << round);
    const bool both = round % 5 == 0;
    if (both) REQUIRE(SendAll(other.client, "x"));
    REQUIRE(SendAll(pair.client, "12345678"));
    REQUIRE(Eventually([&] {
      return ep.Wait(0) == (both ? Events{{1, EPOLLIN}, {2, EPOLLIN}} : Events{{1, EPOLLIN}});
    }));
    const size_t first = round % 8 + 1;
    REQUIRE(ReceiveExactly(pair.server, first).size() == first);
    if (both) REQUIRE(ReceiveExactly(other.server, 1) == "x");
    if (first < 8) {
      REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
      REQUIRE(ReceiveExactly(pair.server, 8 - first).size() == 8 - first);
    }
    REQUIRE(ep.Wait(0).empty());
  }
}

TEST_CASE("epoll: data there before the registration is reported") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "early"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  char c;
  REQUIRE(recv(pair.server, &c, 1, 0) == 1);
  const uint32_t trigger = GENERATE(0u, static_cast<uint32_t>(EPOLLET), static_cast<uint32_t>(EPOLLONESHOT));
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | trigger, 1);
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
}

TEST_CASE("epoll: edge-triggered reports once per arrival") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLET, 1);
  REQUIRE(ep.Quiet());
  for (int i = 0; i < 5; ++i) {
    REQUIRE(SendAll(pair.client, "0123456789"));
    REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
    REQUIRE(ep.Quiet(20));
    char room[4];
    REQUIRE(recv(pair.server, room, 4, 0) == 4);
    // A partial read is no new edge; a new arrival is one, though data were left.
    REQUIRE(ep.Quiet(20));
  }
  REQUIRE(Drain(pair.server) == 30);
  REQUIRE(ep.Quiet(20));
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
}

TEST_CASE("epoll: edge-triggered registration of in and out reports out at first") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLOUT | EPOLLET, 1);
  REQUIRE(ep.Wait() == Events{{1, EPOLLOUT}});
  REQUIRE(ep.Quiet());
  REQUIRE(SendAll(pair.client, "x"));
  // An edge reports all that holds.
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN | EPOLLOUT}});
  REQUIRE(ep.Quiet());
}

TEST_CASE("epoll: EPOLL_CTL_MOD reports what holds again") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLET, 1);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
  REQUIRE(ep.Quiet());
  ep.Mod(pair.server, EPOLLIN | EPOLLET, 2);
  REQUIRE(ep.Wait() == Events{{2, EPOLLIN}});
  REQUIRE(ep.Quiet());
}

TEST_CASE("epoll: one shot until armed again") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLONESHOT, 1);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
  REQUIRE(SendAll(pair.client, "y"));
  REQUIRE(ep.Quiet());
  ep.Mod(pair.server, EPOLLIN | EPOLLONESHOT, 2);
  REQUIRE(ep.Wait() == Events{{2, EPOLLIN}});
  REQUIRE(ep.Quiet());
  pair.client.reset();
  REQUIRE(ep.Quiet());
  ep.Mod(pair.server, EPOLLIN | EPOLLONESHOT, 3);
  REQUIRE(ep.Wait() == Events{{3, EPOLLIN}});
}

// No wait sleeps here: over a local link each reports in its look at the memory.
TEST_CASE("epoll: registrations of each kind in many turns, changed or made anew for each") {
  const auto kind = GENERATE(0U, static_cast<uint32_t>(EPOLLET), static_cast<uint32_t>(EPOLLONESHOT));
  const auto room = GENERATE(0U, static_cast<uint32_t>(EPOLLOUT));
  const bool anew = GENERATE(false, true);
  CAPTURE(kind, room, anew);
  const uint32_t asked = EPOLLIN | room | kind;
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, asked, 0);
  for (uint64_t turn = 1; turn <= 200; ++turn) {
    CAPTURE(turn);
    // One shot is armed for data alone: room would use it up while the data are on their way.
    const bool once = kind == EPOLLONESHOT;
    const Events unread{{turn, once ? EPOLLIN : EPOLLIN | room}};
    const Events empty = room != 0 ? Events{{turn, EPOLLOUT}} : Events{};
    const auto still = [&](const Events& events) { return kind == 0 ? events : Events{}; };
    if (anew) ep.Del(pair.server);
    anew ? ep.Add(pair.server, asked, turn) : ep.Mod(pair.server, asked, turn);
    REQUIRE(ep.Wait(0) == empty);
    REQUIRE(ep.Wait(0) == still(empty));
    if (once) ep.Mod(pair.server, EPOLLIN | kind, turn);
    REQUIRE(SendAll(pair.client, "ab"));
    REQUIRE(ep.Wait() == unread);
    REQUIRE(ep.Wait(0) == still(unread));
    REQUIRE(ReceiveExactly(pair.server, 1) == "a");
    REQUIRE(ep.Wait(0) == still(unread));
    REQUIRE(ReceiveExactly(pair.server, 1) == "b");
    REQUIRE(ep.Wait(0) == still(empty));
    REQUIRE(SendAll(pair.server, "c"));
    REQUIRE(ReceiveExactly(pair.client, 1) == "c");
  }
}

TEST_CASE("epoll: EPOLLOUT comes back when the reader made room") {
  const uint32_t trigger = GENERATE(0u, static_cast<uint32_t>(EPOLLET));
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  SetNonblocking(pair.server);
  Epoll ep;
  ep.Add(pair.client, EPOLLOUT | trigger, 1);
  REQUIRE(ep.Wait() == Events{{1, EPOLLOUT}});
  for (int round = 0; round < 3; ++round) {
    size_t filled = 0;
    // What was taken while filling may count as an edge; what follows the refusal must be silence. The peer's
    // side may take something off the link once more, though nobody reads it.
    REQUIRE(Eventually([&] {
      filled += Fill(pair.client);
      ep.Wait(0);
      if (send(pair.client, "x", 1, 0) == 1) filled += 1;
      return ep.Quiet();
    }));
    REQUIRE(filled > 0);
    size_t drained = 0;
    auto waiter = Async([&] {
      epoll_event event;
      return epoll_wait(ep.fd(), &event, 1, kPatienceMs) == 1 ? event.events : 0;
    });
    REQUIRE(Eventually([&] { return (drained += Drain(pair.server)) == filled; }));
    REQUIRE(Get(waiter) == EPOLLOUT);
    REQUIRE(send(pair.client, "y", 1, 0) == 1);
    REQUIRE(ReceiveExactly(pair.server, 1) == "y");
  }
}

TEST_CASE("epoll: an edge-triggered sender and receiver in one loop") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  SetNonblocking(pair.server);
  Epoll ep;
  ep.Add(pair.client, EPOLLIN | EPOLLOUT | EPOLLET, 1);
  ep.Add(pair.server, EPOLLIN | EPOLLOUT | EPOLLET, 2);
  const std::string data = Pattern(6'000'000);
  std::string got;
  size_t sent = 0;
  std::vector<char> buffer(32 * 1024);
  Stopwatch watch;
  while (got.size() < data.size()) {
    REQUIRE(watch.ms() < kPatienceMs);
    const Events events = ep.Wait();
    REQUIRE_FALSE(events.empty());
    for (const auto& [who, what] : events) {
      if (who == 1 && (what & EPOLLOUT) != 0) {
        while (sent < data.size()) {
          const ssize_t n = send(pair.client, data.data() + sent, data.size() - sent, 0);
          if (n < 0) {
            REQUIRE(errno == EAGAIN);
            break;
          }
          sent += static_cast<size_t>(n);
        }
      }
      if (who == 2 && (what & EPOLLIN) != 0) {
        ssize_t n;
        while ((n = recv(pair.server, buffer.data(), buffer.size(), 0)) > 0)
          got.append(buffer.data(), static_cast<size_t>(n));
        REQUIRE(errno == EAGAIN);
      }
    }
  }
  REQUIRE(Hash(got) == Hash(data));
}

TEST_CASE("epoll: RDHUP and HUP") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLRDHUP, 1);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN | EPOLLRDHUP}});
  char c;
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN | EPOLLRDHUP}});
  ep.Mod(pair.server, 0, 1);
  REQUIRE(ep.Quiet());
  REQUIRE(shutdown(pair.server, SHUT_WR) == 0);
  REQUIRE(ep.Wait() == Events{{1, EPOLLHUP}});
}

TEST_CASE("epoll: edge-triggered end of stream comes once") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLRDHUP | EPOLLET, 1);
  REQUIRE(SendAll(pair.client, "bye"));
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN | EPOLLRDHUP}});
  REQUIRE(ep.Quiet());
}

TEST_CASE("epoll: a reset is EPOLLERR and EPOLLHUP though not asked for", "[abort]") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, 0, 1);
  const linger value{1, 0};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &value, sizeof(value)) == 0);
  pair.client.reset();
  REQUIRE(ep.Wait() == Events{{1, EPOLLERR | EPOLLHUP}});
}

TEST_CASE("epoll: errors") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN, 1);
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_ADD, pair.server, EPOLLIN, 2), EEXIST);
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_MOD, pair.client, EPOLLIN, 2), ENOENT);
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_DEL, pair.client, 0, 0), ENOENT);
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_ADD, 100000, EPOLLIN, 2), EBADF);
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_ADD, ep.fd(), EPOLLIN, 2), EINVAL);
  REQUIRE_ERRNO(ep.Control(77, pair.server, EPOLLIN, 2), EINVAL);
  epoll_event event{};
  REQUIRE_ERRNO(epoll_ctl(100000, EPOLL_CTL_ADD, pair.server, &event), EBADF);
  REQUIRE_ERRNO(epoll_ctl(pair.client, EPOLL_CTL_ADD, pair.server, &event), EINVAL);
  REQUIRE_ERRNO(epoll_ctl(ep.fd(), EPOLL_CTL_ADD, pair.client, nullptr), EFAULT);
  REQUIRE_ERRNO(epoll_wait(ep.fd(), &event, 0, 0), EINVAL);
  volatile int minus_one = -1;
  REQUIRE_ERRNO(epoll_wait(ep.fd(), &event, minus_one, 0), EINVAL);
  REQUIRE_ERRNO(epoll_wait(pair.server, &event, 1, 0), EINVAL);
  REQUIRE_ERRNO(epoll_wait(100000, &event, 1, 0), EBADF);
  REQUIRE_ERRNO(epoll_create(0), EINVAL);
  REQUIRE_ERRNO(epoll_create1(12345), EINVAL);
  ep.Del(pair.server);
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_DEL, pair.server, 0, 0), ENOENT);
  ep.Add(pair.server, EPOLLIN, 3);
  Fd file(open("/proc/self/exe", O_RDONLY));
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_ADD, file, EPOLLIN, 1), EPERM);
}

TEST_CASE("epoll: EPOLLEXCLUSIVE") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLEXCLUSIVE, 1);
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_MOD, pair.server, EPOLLIN, 1), EINVAL);
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_ADD, pair.client, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1), EINVAL);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
}

TEST_CASE("epoll: sockets and a pipe and a timer and a listener in one set") {
  Pair pair = MakePair();
  Listener listener = Listen();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]), timer(timerfd_create(CLOCK_MONOTONIC, 0)), event(eventfd(0, 0));
  Epoll ep;
  ep.Add(pair.server, EPOLLIN, 1);
  ep.Add(in, EPOLLIN, 2);
  ep.Add(timer, EPOLLIN, 3);
  ep.Add(listener.fd, EPOLLIN, 4);
  ep.Add(event, EPOLLIN | EPOLLET, 5);
  REQUIRE(ep.Quiet());
  REQUIRE(write(out, "p", 1) == 1);
  REQUIRE(ep.Wait() == Events{{2, EPOLLIN}});
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}, {2, EPOLLIN}});
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  char c;
  REQUIRE(read(in, &c, 1) == 1);
  const itimerspec soon{{0, 0}, {0, 30'000'000}};
  REQUIRE(timerfd_settime(timer, 0, &soon, nullptr) == 0);
  REQUIRE(ep.Wait() == Events{{3, EPOLLIN}});
  uint64_t value;
  REQUIRE(read(timer, &value, sizeof(value)) == sizeof(value));
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(ep.Wait() == Events{{4, EPOLLIN}});
  Fd server(accept(listener.fd, nullptr, nullptr));
  const uint64_t one = 1;
  REQUIRE(write(event, &one, sizeof(one)) == sizeof(one));
  REQUIRE(ep.Wait() == Events{{5, EPOLLIN}});
  REQUIRE(ep.Quiet());
}

TEST_CASE("epoll: maxevents smaller than what is ready serves all in turn") {
  std::vector<Pair> pairs;
  Epoll ep;
  for (uint64_t i = 0; i < 10; ++i) {
    pairs.push_back(MakePair());
    ep.Add(pairs.back().server, EPOLLIN, i);
    REQUIRE(SendAll(pairs.back().client, "x"));
  }
  for (Pair& pair : pairs) REQUIRE(WaitFor(pair.server, POLLIN));
  std::map<uint64_t, int> seen;
  for (int i = 0; i < 40; ++i) {
    epoll_event events[3];
    const int n = epoll_wait(ep.fd(), events, 3, kPatienceMs);
    REQUIRE(n >= 1);
    REQUIRE(n <= 3);
    for (int j = 0; j < n; ++j) ++seen[events[j].data.u64];
  }
  REQUIRE(seen.size() == 10);
}

TEST_CASE("epoll: a descriptor comes once in an answer whatever happens to it meanwhile") {
  std::vector<Pair> pairs;
  Epoll ep;
  for (uint64_t i = 0; i < 6; ++i) {
    pairs.push_back(MakePair());
    ep.Add(pairs.back().server, EPOLLIN | EPOLLOUT, i);
  }
  for (int round = 0; round < 200; ++round) {
    // Some are known to be ready since the last answer, for some the news is still on its way.
    if (round % 2 == 0) REQUIRE(SendAll(pairs[static_cast<size_t>(round / 2) % pairs.size()].client, "x"));
    epoll_event events[16];
    const int n = epoll_wait(ep.fd(), events, 16, kPatienceMs);
    REQUIRE(n == 6);
    std::set<uint64_t> seen;
    for (int i = 0; i < n; ++i) seen.insert(events[i].data.u64);
    REQUIRE(seen.size() == 6);
  }
}

TEST_CASE("epoll: what is new and what held before come in one event, edge-triggered") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.client, EPOLLIN | EPOLLOUT | EPOLLET, 1);
  ep.Add(pair.server, EPOLLIN | EPOLLOUT | EPOLLET, 2);
  REQUIRE(ep.Wait() == Events{{1, EPOLLOUT}, {2, EPOLLOUT}});
  for (int round = 0; round < 50; ++round) {
    REQUIRE(SendAll(pair.client, "Hello!"));
    REQUIRE(SendAll(pair.server, "world!!!"));
    std::map<uint64_t, std::vector<uint32_t>> seen;
    const auto all = [&] { return seen[1].size() + seen[2].size() >= 2; };
    REQUIRE(Eventually([&] {
      epoll_event events[4];
      const int n = epoll_wait(ep.fd(), events, 4, kPatienceMs);
      for (int i = 0; i < n; ++i) seen[events[i].data.u64].push_back(events[i].events);
      return all();
    }));
    REQUIRE(seen[1] == std::vector<uint32_t>{EPOLLIN | EPOLLOUT});
    REQUIRE(seen[2] == std::vector<uint32_t>{EPOLLIN | EPOLLOUT});
    REQUIRE(ReceiveExactly(pair.server, 6) == "Hello!");
    REQUIRE(ReceiveExactly(pair.client, 8) == "world!!!");
  }
}

TEST_CASE("epoll: an always ready pipe does not starve a socket and the reverse") {
  Pair pair = MakePair(), loud = MakePair();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  REQUIRE(write(out, "p", 1) == 1);
  REQUIRE(SendAll(loud.client, "x"));
  Epoll ep;
  ep.Add(in, EPOLLIN, 1);
  ep.Add(loud.server, EPOLLIN, 2);
  ep.Add(pair.server, EPOLLIN, 3);
  REQUIRE(WaitFor(loud.server, POLLIN));
  REQUIRE(SendAll(pair.client, "x"));
  std::map<uint64_t, int> seen;
  Stopwatch watch;
  while (seen.size() < 3 && watch.ms() < kPatienceMs) {
    epoll_event event;
    REQUIRE(epoll_wait(ep.fd(), &event, 1, kPatienceMs) == 1);
    ++seen[event.data.u64];
  }
  REQUIRE(seen.size() == 3);
}

TEST_CASE("epoll: level-triggered, each of the sleeping threads hears of what nobody reads") {
  const bool late = GENERATE(false, true);  // threads that slept in the set before a socket was in it
  for (int round = 0; round < 10; ++round) {
    Pair pair = MakePair();
    const Fd set(epoll_create1(0));
    epoll_event event{.events = EPOLLIN, .data = {.u32 = 7}};
    if (!late) REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
    std::vector<std::future<int>> threads;
    for (int i = 0; i < 3; ++i) {
      threads.push_back(Async([&] {
        epoll_event got{};
        return epoll_wait(set, &got, 1, kPatienceMs);
      }));
    }
    REQUIRE(StillRunning(threads.front(), 5));
    REQUIRE(SendAll(pair.client, "x"));
    if (late) REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
    for (std::future<int>& thread : threads) REQUIRE(Get(thread) == 1);
  }
}

TEST_CASE("epoll: of what is ready at once each of the sleeping threads takes one") {
  for (int round = 0; round < 50; ++round) {
    Listener listener = Listen();
    Pair pairs[2] = {ConnectTo(listener), ConnectTo(listener)};
    const Fd set(epoll_create1(0));
    for (const Pair& pair : pairs) {
      epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u32 = 7}};
      REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
    }
    std::vector<std::future<int>> threads;
    for (int i = 0; i < 2; ++i) {
      threads.push_back(Async([&] {
        epoll_event got{};
        return epoll_wait(set, &got, 1, kPatienceMs);
      }));
    }
    for (const Pair& pair : pairs) REQUIRE(SendAll(pair.client, "x"));
    for (std::future<int>& thread : threads) REQUIRE(Get(thread) == 1);
  }
}

TEST_CASE("epoll: two threads wait and another drains") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLET, 1);
  std::atomic<size_t> total{0};
  auto worker = [&] {
    return Async([&] {
      Stopwatch watch;
      while (total < 50'000 && watch.ms() < kPatienceMs) {
        epoll_event event;
        epoll_wait(ep.fd(), &event, 1, 100);
        total += Drain(pair.server);
      }
      return true;
    });
  };
  auto one = worker(), two = worker();
  for (int i = 0; i < 500; ++i) REQUIRE(SendAll(pair.client, Pattern(100)));
  REQUIRE(Get(one));
  REQUIRE(Get(two));
  REQUIRE(total == 50'000);
}

TEST_CASE("epoll: a wait survives that another thread reads the socket") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN, 1);
  auto reader = Async([&] { return ReceiveExactly(pair.server, 300'000).size(); });
  auto waiter = Async([&] {
    Stopwatch watch;
    int wakes = 0;
    for (;;) {
      epoll_event event;
      const int n = epoll_wait(ep.fd(), &event, 1, 200);
      if (n == 0) return wakes;
      if (n < 0 || watch.ms() > kPatienceMs) return -1;
      ++wakes;
    }
  });
  for (int i = 0; i < 300; ++i) REQUIRE(SendAll(pair.client, Pattern(1000)));
  REQUIRE(Get(reader) == 300'000);
  REQUIRE(Get(waiter) >= 0);
  REQUIRE(ep.Quiet());
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
}

TEST_CASE("epoll: time-outs and epoll_pwait and epoll_pwait2") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN, 1);
  epoll_event event;
  Stopwatch watch;
  REQUIRE(epoll_wait(ep.fd(), &event, 1, 60) == 0);
  REQUIRE(watch.ms() >= 59);
  const timespec ts{0, 30'000'000};
  Stopwatch second;
  REQUIRE(epoll_pwait2(ep.fd(), &event, 1, &ts, nullptr) == 0);
  REQUIRE(second.ms() >= 29);
  REQUIRE(second.ms() < kAtOnceMs);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(epoll_pwait(ep.fd(), &event, 1, kPatienceMs, nullptr) == 1);
  REQUIRE(epoll_pwait2(ep.fd(), &event, 1, nullptr, nullptr) == 1);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");

  static volatile sig_atomic_t seen;
  seen = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { seen = 1; };
  sigaction(SIGUSR1, &action, nullptr);
  sigset_t block, open;
  sigemptyset(&block);
  sigaddset(&block, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &block, &open);
  sigdelset(&open, SIGUSR1);
  raise(SIGUSR1);
  REQUIRE(epoll_wait(ep.fd(), &event, 1, 30) == 0);
  REQUIRE_ERRNO(epoll_pwait(ep.fd(), &event, 1, kPatienceMs, &open), EINTR);
  REQUIRE(seen == 1);
  pthread_sigmask(SIG_UNBLOCK, &block, nullptr);
}

TEST_CASE("epoll: many sockets each with their own data") {
  std::vector<Pair> pairs;
  Listener listener = Listen();
  Epoll ep;
  for (uint64_t i = 0; i < 60; ++i) {
    pairs.push_back(ConnectTo(listener));
    ep.Add(pairs.back().server, EPOLLIN | (i % 2 == 0 ? static_cast<uint32_t>(EPOLLET) : 0u),
           0x1'0000'0000u * (i + 1) + i);
  }
  for (uint64_t i = 0; i < 60; i += 7) {
    REQUIRE(SendAll(pairs[i].client, "!"));
    REQUIRE(ep.Wait() == Events{{0x1'0000'0000u * (i + 1) + i, EPOLLIN}});
    REQUIRE(ReceiveExactly(pairs[i].server, 1) == "!");
  }
  REQUIRE(ep.Quiet());
}

}  // namespace
}  // namespace posix_test
