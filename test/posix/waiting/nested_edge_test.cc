// An epoll set around another is told what the kernel would tell: no more edges than there are, a single shot
// when it is worth one, and the same by every number of either.
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <vector>

#include "test/posix/waiting/nested_support.h"

namespace posix_test {
namespace {

// With room for more events than come.
int WaitWithRoom(int set, int timeout_ms = kPatienceMs) {
  epoll_event events[4]{};
  return epoll_wait(set, events, 4, timeout_ms) == 1 ? events[0].data.fd : -1;
}

bool Quiet(int set) { return WaitWithRoom(set, kQuietMs) == -1; }

}  // namespace

TEST_CASE("nested edge: what comes inside is told once outside") {
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  const bool edge_inside = GENERATE(false, true);
  Add(inner, pair.server, edge_inside ? EPOLLIN | EPOLLET : EPOLLIN);
  Add(outer, inner, EPOLLIN | EPOLLET);
  REQUIRE(Quiet(outer));
  for (int i = 0; i < 3; ++i) {
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(WaitWithRoom(outer) == inner);
    REQUIRE(Quiet(outer));
    REQUIRE(SendAll(pair.client, "y"));
    REQUIRE(WaitWithRoom(outer) == inner);
    REQUIRE(Quiet(outer));
    REQUIRE(WaitOne(inner) == pair.server);
    REQUIRE(ReceiveExactly(pair.server, 2) == "xy");
    REQUIRE(Quiet(outer));
  }
}

TEST_CASE("nested edge: with others beside, each is told once") {
  Pair pair = MakePair(), other = MakePair();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Fd reads(ends[0]), writes(ends[1]);
  Fd inner = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  Add(outer, inner, EPOLLIN | EPOLLET);
  Add(outer, other.server, EPOLLIN | EPOLLET);
  Add(outer, reads, EPOLLIN | EPOLLET);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(SendAll(other.client, "x"));
    REQUIRE(write(writes, "x", 1) == 1);
    std::vector<int> told;
    epoll_event events[8]{};
    while (told.size() < 3) {
      const int count = epoll_wait(outer, events, 8, kPatienceMs);
      REQUIRE(count > 0);
      for (int k = 0; k < count; ++k) told.push_back(events[k].data.fd);
    }
    REQUIRE(told.size() == 3);
    REQUIRE(Quiet(outer));
    for (const int fd : {inner.get(), other.server.get(), reads.get()})
      REQUIRE(std::count(told.begin(), told.end(), fd) == 1);
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    REQUIRE(ReceiveExactly(other.server, 1) == "x");
    char c;
    REQUIRE(read(reads, &c, 1) == 1);
  }
}

TEST_CASE("nested edge: a single shot waits for something to report") {
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  REQUIRE(SendAll(pair.client, "before"));
  REQUIRE(WaitOne(inner) == pair.server);
  REQUIRE(ReceiveExactly(pair.server, 6) == "before");
  Add(outer, inner, EPOLLIN | EPOLLONESHOT);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(Quiet(outer));
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(WaitWithRoom(outer) == inner);
    REQUIRE(Quiet(outer));
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    REQUIRE(SendAll(pair.client, "y"));
    REQUIRE(Quiet(outer));
    REQUIRE(Control(outer, EPOLL_CTL_MOD, inner, EPOLLIN | EPOLLONESHOT) == 0);
    REQUIRE(WaitWithRoom(outer) == inner);
    REQUIRE(ReceiveExactly(pair.server, 1) == "y");
    REQUIRE(Control(outer, EPOLL_CTL_MOD, inner, EPOLLIN | EPOLLONESHOT) == 0);
  }
}

TEST_CASE("nested edge: by a duplicate of either, and when the first number is closed") {
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  Add(outer, inner, EPOLLIN);
  const Fd outer_too(dup(outer)), inner_too(dup(inner));
  const int number = inner;
  const auto turn = [&](int set, int set_inside) {
    REQUIRE(Quiet(set));
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(WaitWithRoom(set) == number);
    REQUIRE(WaitWithRoom(set_inside) == pair.server);
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    REQUIRE(Quiet(set));
  };
  turn(outer_too, inner_too);
  turn(outer, inner_too);
  outer.reset();
  turn(outer_too, inner);
  inner.reset();
  turn(outer_too, inner_too);
}

TEST_CASE("nested edge: poll for either word") {
  Pair pair = MakePair();
  Fd inner = Set();
  Add(inner, pair.server, EPOLLIN);
  const short words = GENERATE(POLLIN, POLLRDNORM, POLLIN | POLLRDNORM, POLLRDNORM | POLLOUT | POLLPRI);
  const short told = static_cast<short>(words & (POLLIN | POLLRDNORM));
  for (int i = 0; i < 3; ++i) {
    REQUIRE(PollOne(inner, words, 0) == 0);
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(PollOne(inner, POLLIN) == POLLIN);  // the kernel does not wake who waits for the other word alone
    REQUIRE(PollOne(inner, words, 0) == told);
    REQUIRE(PollOne(inner, POLLOUT, 0) == 0);
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    REQUIRE(PollOne(inner, words, kQuietMs) == 0);
  }
}

}  // namespace posix_test
