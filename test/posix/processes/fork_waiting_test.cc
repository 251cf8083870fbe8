// Processes that hold a connection together after a fork, and wait for what another one of them leaves.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

TEST_CASE("fork: a child waits in poll for what its parent leaves to it") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "for the parent"));
  const pid_t pid = Fork([&] {
    if (ReceiveExactly(pair.server, 7) != "for the") return 1;
    return 0;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(PollOne(pair.server, POLLIN) == POLLIN);
  REQUIRE(ReceiveExactly(pair.server, 7) == " parent");
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
}

// Over SDP such a child cannot use the connection, and its calls answer EIO.
TEST_CASE("fork: a wait of a child that got no descriptors ends, and so does its receive") {
  enum class Waits { kInPoll, kInSetOfParent, kInSet };
  const Waits waits = GENERATE(Waits::kInPoll, Waits::kInSetOfParent, Waits::kInSet);
  const uint32_t edge = GENERATE(0u, static_cast<uint32_t>(EPOLLET));
  Pair pair = MakePair();
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | edge, .data = {.u64 = 7}};
  if (waits == Waits::kInSetOfParent) {
    REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
    REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
  }
  REQUIRE(SendAll(pair.client, "x"));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const Fd lowest(dup(pair.server));
  const rlimit none{.rlim_cur = static_cast<rlim_t>(lowest), .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const pid_t pid = Fork([&] {
    if (setrlimit(RLIMIT_NOFILE, &before) != 0) return 1;
    if (waits == Waits::kInSet && epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) != 0) return 2;
    const int ready = waits == Waits::kInPoll ? static_cast<int>(PollOne(pair.server, POLLIN) != 0)
                                              : epoll_wait(ep, &event, 1, kPatienceMs);
    if (ready != 1) return 3;
    char byte;
    const ssize_t got = recv(pair.server, &byte, 1, 0);
    return got == 1 || (got == -1 && errno == EIO) ? 0 : 4;
  });
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: an epoll set reports what another process took from the link and left") {
  const uint32_t edge = GENERATE(0u, static_cast<uint32_t>(EPOLLET));
  const bool by_poll = GENERATE(false, true);
  Pair pair = MakePair();
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | edge, .data = {.u64 = 7}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
  Pipe taken;
  const pid_t pid = Fork([&] {
    if (ReceiveExactly(pair.server, 4) != "one ") return 1;
    taken.Tell();
    pause();
    return 0;
  });
  REQUIRE(SendAll(pair.client, "one two"));
  REQUIRE(taken.Hear());
  if (by_poll) REQUIRE(PollOne(ep, POLLIN) == POLLIN);
  event = {};
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.data.u64 == 7);
  REQUIRE(ReceiveExactly(pair.server, 3) == "two");
  Kill(pid);
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
  // Alone again.
  REQUIRE(SendAll(pair.client, "three"));
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(ReceiveExactly(pair.server, 5) == "three");
}

TEST_CASE("fork: a wait in epoll ends with what comes while another process polls") {
  Pair pair = MakePair();
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  for (int i = 0; i < 8; ++i) {
    // The child sees the bytes and leaves them all. Not killed before: who dies in the middle of a call takes
    // the connection with it.
    Pipe seen;
    const pid_t pid = Fork([&] {
      if (!WaitFor(pair.server, POLLIN)) return 1;
      seen.Tell();
      pause();
      return 0;
    });
    auto waiter = Async([&] { return epoll_wait(ep, &event, 1, kPatienceMs); });
    REQUIRE(StillRunning(waiter, 20));
    REQUIRE(SendAll(pair.client, "look"));
    REQUIRE(Get(waiter) == 1);
    REQUIRE(seen.Hear());
    REQUIRE(ReceiveExactly(pair.server, 4) == "look");
    Kill(pid);
  }
}

// None of them says that it has the connection no longer, and the parent does not use it meanwhile.
TEST_CASE("fork: a child has the connection behind many that were killed or became other programs") {
  constexpr int kChildren = 100;
  const bool killed = GENERATE(false, true);
  Pair pair = MakePair();
  fcntl(pair.server, F_SETFD, FD_CLOEXEC);
  for (int i = 0; i < kChildren; ++i) {
    const pid_t pid = Fork([&] {
      if (killed) raise(SIGKILL);
      execl("/bin/true", "true", nullptr);
      return 1;
    });
    const int status = Reap(pid);
    REQUIRE((killed ? WIFSIGNALED(status) : ExitedWith(status, 0)));
  }
  REQUIRE(ExitedWith(Reap(Fork([&] { return SendAll(pair.server, "from a child") ? 0 : 1; })), 0));
  REQUIRE(ReceiveExactly(pair.client, 12) == "from a child");
  REQUIRE(SendAll(pair.server, "from the parent"));
  REQUIRE(ReceiveExactly(pair.client, 15) == "from the parent");
}

}  // namespace
}  // namespace posix_test
