// Epoll sets inside epoll sets stay readable as long as there is something inside, however often it is looked
// at, and no longer.
#include <poll.h>

#include <string>
#include <vector>

#include "test/posix/waiting/nested_support.h"

namespace posix_test {
namespace {

// By every way to look, and each time.
void RequireReadable(int outer, int inner) {
  for (int i = 0; i < 3; ++i) {
    REQUIRE(WaitOne(outer) == inner);
    REQUIRE(PollOne(outer, POLLIN, 0) == POLLIN);
    REQUIRE(PollOne(inner, POLLIN, 0) == POLLIN);
    REQUIRE(WaitOne(outer, 0) == inner);
  }
}

// Nobody looks into what is inside. To be woken for nothing once is allowed.
bool BecomesQuiet(int outer) {
  return Eventually([&] { return WaitOne(outer, 0) == -1; }) && WaitOne(outer, kQuietMs) == -1 &&
         PollOne(outer, POLLIN, 0) == 0;
}

TEST_CASE("nested level: a set that is ready when it is put into another") {
  const bool looked_into = GENERATE(true, false);
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  REQUIRE(SendAll(pair.client, "ab"));
  if (looked_into) REQUIRE(WaitOne(inner) == pair.server);
  Add(outer, inner, EPOLLIN);
  RequireReadable(outer, inner);
  REQUIRE(WaitOne(inner, 0) == pair.server);
  RequireReadable(outer, inner);
  REQUIRE(SendAll(pair.client, "c"));
  RequireReadable(outer, inner);
  REQUIRE(ReceiveExactly(pair.server, 2) == "ab");
  RequireReadable(outer, inner);
  REQUIRE(ReceiveExactly(pair.server, 1) == "c");
  REQUIRE(BecomesQuiet(outer));
  REQUIRE(SendAll(pair.client, "d"));
  RequireReadable(outer, inner);
}

TEST_CASE("nested level: EPOLL_CTL_MOD looks at the inner set again") {
  const uint32_t before =
      GENERATE(uint32_t{EPOLLIN}, uint32_t{EPOLLIN | EPOLLET}, uint32_t{EPOLLIN | EPOLLONESHOT});
  const uint32_t after =
      GENERATE(uint32_t{EPOLLIN}, uint32_t{EPOLLIN | EPOLLET}, uint32_t{EPOLLIN | EPOLLONESHOT});
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  REQUIRE(SendAll(pair.client, "x"));
  Add(outer, inner, before);
  REQUIRE(WaitOne(outer) == inner);
  // What an edge-triggered one is told of twice is told twice now.
  REQUIRE(Eventually([&] { return before == EPOLLIN || WaitOne(outer, 0) == -1; }));
  REQUIRE(Control(outer, EPOLL_CTL_MOD, inner, after) == 0);
  REQUIRE(WaitOne(outer) == inner);
  if (after == EPOLLIN) RequireReadable(outer, inner);
  if ((after & EPOLLET) != 0) REQUIRE(Eventually([&] { return WaitOne(outer, 0) == -1; }));
  if ((after & EPOLLONESHOT) != 0) REQUIRE(WaitOne(outer, kQuietMs) == -1);
}

TEST_CASE("nested level: a message a turn, and a set around it that comes later") {
  const bool by_poll = GENERATE(true, false);
  Pair pair = MakePair();
  Fd inner = Set();
  Fd outer = Set();
  Add(outer, inner, EPOLLIN);
  Add(inner, pair.server, EPOLLIN);
  const auto turn = [&] {
    REQUIRE((by_poll ? PollOne(inner, POLLIN) == POLLIN : WaitOne(outer) == inner));
    REQUIRE(WaitOne(inner, 0) == pair.server);
  };
  for (int i = 0; i < 5; ++i) REQUIRE(SendAll(pair.client, "msg."));
  for (int i = 0; i < 4; ++i) {
    turn();
    REQUIRE(ReceiveExactly(pair.server, 4) == "msg.");
  }
  turn();
  Fd later = Set();
  Add(later, inner, EPOLLIN);
  RequireReadable(later, inner);
  RequireReadable(outer, inner);
  REQUIRE(ReceiveExactly(pair.server, 4) == "msg.");
  REQUIRE(BecomesQuiet(later));
  REQUIRE(BecomesQuiet(outer));
  REQUIRE(SendAll(pair.client, "more"));
  RequireReadable(later, inner);
  RequireReadable(outer, inner);
}

TEST_CASE("nested level: what is read deep inside is gone from every set around it") {
  const size_t depth = GENERATE(size_t{3}, size_t{4});
  Pair pair = MakePair();
  std::vector<Fd> sets;
  sets.push_back(Set());
  Add(sets[0], pair.server, EPOLLIN);
  while (sets.size() < depth) {
    sets.push_back(Set());
    Add(sets.back(), sets[sets.size() - 2], EPOLLIN);
  }
  for (int i = 0; i < 3; ++i) {
    REQUIRE(SendAll(pair.client, "x"));
    for (size_t outer = depth; --outer > 0;) RequireReadable(sets[outer], sets[outer - 1]);
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    for (size_t outer = depth; --outer > 0;) REQUIRE(BecomesQuiet(sets[outer]));
  }
}

TEST_CASE("nested level: deep inside, a pipe beside and a second connection") {
  Pair pair = MakePair();
  Pair other = MakePair();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Fd out(ends[0]), in(ends[1]);
  Fd inner = Set();
  Fd middle = Set();
  Fd outer = Set();
  Add(inner, pair.server, EPOLLIN);
  Add(inner, out, EPOLLIN);
  Add(middle, inner, EPOLLIN);
  Add(middle, other.server, EPOLLIN);
  Add(outer, middle, EPOLLIN);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitOne(outer) == middle);
  REQUIRE(write(in, "y", 1) == 1);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  RequireReadable(outer, middle);
  char byte;
  REQUIRE(read(out, &byte, 1) == 1);
  REQUIRE(BecomesQuiet(outer));
  REQUIRE(SendAll(other.client, "z"));
  RequireReadable(outer, middle);
  REQUIRE(WaitOne(middle) == other.server);
  REQUIRE(ReceiveExactly(other.server, 1) == "z");
  REQUIRE(BecomesQuiet(outer));
}

}  // namespace
}  // namespace posix_test
