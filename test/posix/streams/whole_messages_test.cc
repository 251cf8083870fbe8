// What has come as a whole, and is taken as a whole, in parts, late, or not at all.
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <atomic>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

ssize_t Receive(int fd, std::string* text, size_t room, int flags = 0) {
  text->assign(room, '\0');
  const ssize_t n = recv(fd, text->data(), room, flags);
  text->resize(n > 0 ? static_cast<size_t>(n) : 0);
  return n;
}

TEST_CASE("whole messages: a receive that waits with little room takes as much, and the next one the rest") {
  Pair pair = MakePair();
  for (int turn = 0; turn < 40; ++turn) {
    std::string first;
    std::atomic<pid_t> tid{0};
    auto receiver = Async([&] {
      tid = gettid();
      return Receive(pair.server, &first, 4);
    });
    // Every other turn the bytes come while the receiver may still look for them.
    REQUIRE(Eventually([&] { return tid != 0 && (turn % 2 == 0 || IsAsleep(tid)); }));
    REQUIRE(SendAll(pair.client, "0123456789"));
    REQUIRE(Get(receiver) == 4);
    REQUIRE(first == "0123");
    REQUIRE(ReceiveExactly(pair.server, 6) == "456789");
  }
}

TEST_CASE("whole messages: MSG_WAITALL takes a part of the last one, and the next receive its rest") {
  Pair pair = MakePair();
  for (int turn = 0; turn < 20; ++turn) {
    std::string all;
    auto receiver = Async([&] { return Receive(pair.server, &all, 8, MSG_WAITALL); });
    REQUIRE(SendAll(pair.client, "01234"));
    REQUIRE(SendAll(pair.client, "56789abcde"));
    REQUIRE(Get(receiver) == 8);
    REQUIRE(all == "01234567");
    REQUIRE(ReceiveExactly(pair.server, 7) == "89abcde");
  }
}

TEST_CASE("whole messages: one receive takes all that has come, though the last has no room") {
  Pair pair = MakePair();
  SetOption(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
  const std::string text = Pattern(1050);
  int whole = 0;  // a busy kernel may deliver the second write late
  for (int turn = 0; turn < 50; ++turn) {
    REQUIRE(SendAll(pair.client, text.substr(0, 100)));
    REQUIRE(SendAll(pair.client, text.substr(100)));
    std::string got;
    const ssize_t n = Receive(pair.server, &got, 1000);
    REQUIRE(n > 0);
    whole += n == 1000;
    REQUIRE((got + ReceiveExactly(pair.server, 1050 - got.size()) == text));
  }
  CHECK(whole > 0);
}

TEST_CASE("whole messages: a receive into many pieces, and into memory that is not there") {
  Pair pair = MakePair();
  const std::string text = Pattern(200);
  REQUIRE(SendAll(pair.client, text));
  REQUIRE(WaitFor(pair.server, POLLIN));
  std::string got(200, '\0');
  iovec pieces[100];
  for (size_t i = 0; i < 100; ++i) pieces[i] = {got.data() + 2 * i, 2};
  REQUIRE(readv(pair.server, pieces, 100) == 200);
  REQUIRE((got == text));
  REQUIRE(SendAll(pair.client, text));
  REQUIRE(WaitFor(pair.server, POLLIN));
  errno = 0;
  CHECK(recv(pair.server, reinterpret_cast<void*>(4096), 200, 0) == -1);
  CHECK(errno == EFAULT);
  REQUIRE((ReceiveExactly(pair.server, 200) == text));
}

TEST_CASE("whole messages: what poll has told of is read in parts, and told of until all is read") {
  Pair pair = MakePair();
  const bool nonblocking = GENERATE(false, true);
  CAPTURE(nonblocking);
  SetNonblocking(pair.server, nonblocking);
  REQUIRE(SendAll(pair.client, "0123456789"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  std::string got;
  for (const char* part : {"0123", "4567"}) {
    REQUIRE(Receive(pair.server, &got, 4) == 4);
    CHECK(got == part);
    CHECK(PollOne(pair.server, POLLIN, 0) == POLLIN);
  }
  REQUIRE(Receive(pair.server, &got, 4) == 2);
  CHECK(PollOne(pair.server, POLLIN, 0) == 0);
  errno = 0;
  CHECK(Receive(pair.server, &got, 4, MSG_DONTWAIT) == -1);
  CHECK(errno == EAGAIN);
}

TEST_CASE("whole messages: the peer's end is told of, behind one that is not read") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  CHECK(PollOne(pair.server, POLLIN | POLLRDHUP, 0) == POLLIN);
  pair.client.reset();
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  CHECK(ReceiveToEnd(pair.server) == "x");
}

struct Set {
  explicit Set(int fd, uint32_t events) : ep(epoll_create1(0)) {
    epoll_event registered{events, {}};
    REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &registered) == 0);
  }
  uint32_t Wait(int timeout_ms) {
    epoll_event event{};
    return epoll_wait(ep, &event, 1, timeout_ms) == 1 ? event.events : 0;
  }
  Fd ep;
};

TEST_CASE("whole messages: an edge comes once for each that comes, whether the one before was read or not") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  Set set(pair.server, EPOLLIN | EPOLLET);
  for (int turn = 0; turn < 20; ++turn) {
    REQUIRE(SendAll(pair.client, "ab"));
    REQUIRE(set.Wait(kPatienceMs) == EPOLLIN);
    REQUIRE(set.Wait(turn == 0 ? kQuietMs : 0) == 0);
    REQUIRE(SendAll(pair.client, "cd"));
    REQUIRE(set.Wait(kPatienceMs) == EPOLLIN);
    REQUIRE(set.Wait(0) == 0);
    REQUIRE(ReceiveExactly(pair.server, 3) == "abc");
    REQUIRE(set.Wait(0) == 0);
    REQUIRE(SendAll(pair.client, "ef"));
    REQUIRE(set.Wait(kPatienceMs) == EPOLLIN);
    REQUIRE(ReceiveExactly(pair.server, 3) == "def");
    REQUIRE(set.Wait(turn == 0 ? kQuietMs : 0) == 0);
  }
}

TEST_CASE("whole messages: an edge comes when SO_RCVLOWAT falls to what is there") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  Set set(pair.server, EPOLLIN | EPOLLET);
  REQUIRE(SendAll(pair.client, "01234"));
  REQUIRE(set.Wait(kPatienceMs) == EPOLLIN);
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 3);
  CHECK(set.Wait(kPatienceMs) == EPOLLIN);
  CHECK(ReceiveExactly(pair.server, 5) == "01234");
}

TEST_CASE("whole messages: a set that asks for no input hears of the end, behind one that is not read") {
  Pair pair = MakePair();
  Pair busy = MakePair();
  SetNonblocking(pair.server);
  SetNonblocking(busy.server);
  Set set(pair.server, EPOLLIN);
  epoll_event other{EPOLLIN | EPOLLET, {.u64 = 1}};
  REQUIRE(epoll_ctl(set.ep, EPOLL_CTL_ADD, busy.server, &other) == 0);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(set.Wait(kPatienceMs) == EPOLLIN);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  epoll_event silent{EPOLLRDHUP, {}};
  REQUIRE(epoll_ctl(set.ep, EPOLL_CTL_MOD, pair.server, &silent) == 0);
  REQUIRE(SendAll(pair.client, "y"));
  // The set stays busy with another connection meanwhile.
  const auto round = [&] {
    REQUIRE(SendAll(busy.client, "z"));
    std::string got;
    epoll_event event{};
    while (epoll_wait(set.ep, &event, 1, kPatienceMs) == 1 && event.data.u64 != 1) {
      if ((event.events & EPOLLRDHUP) != 0) return true;
    }
    REQUIRE(Receive(busy.server, &got, 10) == 1);
    return false;
  };
  for (int i = 0; i < 200; ++i) REQUIRE_FALSE(round());
  pair.client.reset();
  const Stopwatch since;
  while (!round() && since.ms() < kAtOnceMs) {
  }
  CHECK(since.ms() < kAtOnceMs);
}

}  // namespace
}  // namespace posix_test
