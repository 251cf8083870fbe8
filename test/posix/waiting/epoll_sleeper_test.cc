// Threads that sleep for an epoll descriptor, by whatever call and number, since before it had its first
// socket. No link wakes them: what makes the socket ready is there already, or is done by another thread's
// call.
#include <poll.h>
#include <sys/select.h>
#include <unistd.h>

#include <atomic>

#include "test/posix/waiting/epoll_support.h"

namespace posix_test {
namespace {

enum class How { kWait, kPoll, kSelect };

// What a thread that sleeps for `fd` in such a call hears: the call's result, negative if it failed.
std::future<int> SleepFor(int fd, How how, std::atomic<pid_t>& tid) {
  return Async([fd, how, &tid] {
    tid = gettid();
    switch (how) {
      case How::kWait: {
        epoll_event event{};
        return epoll_wait(fd, &event, 1, kPatienceMs);
      }
      case How::kPoll: {
        pollfd asked{.fd = fd, .events = POLLIN, .revents = 0};
        return poll(&asked, 1, kPatienceMs);
      }
      case How::kSelect: {
        fd_set read;
        FD_ZERO(&read);
        FD_SET(fd, &read);
        timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
        return select(fd + 1, &read, nullptr, nullptr, &patience);
      }
    }
    return -1;
  });
}

// A byte that is out of the kernel's hands, and that nobody has read.
Pair WithByteTaken() {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "ab"));
  REQUIRE(ReceiveExactly(pair.server, 1) == "a");
  return pair;
}

// The sleeper began before the process had a socket, or after.
bool SleepsFirst() { return GENERATE(true, false); }

TEST_CASE("epoll: who sleeps for a duplicate of the descriptor hears of the first socket") {
  const bool sleeps_first = SleepsFirst();
  const How how = GENERATE(How::kWait, How::kPoll, How::kSelect);
  Pair pair;
  if (!sleeps_first) pair = WithByteTaken();
  Epoll ep;
  Fd copy(dup(ep.fd()));
  std::atomic<pid_t> tid{0};
  auto sleeper = SleepFor(copy, how, tid);
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  if (sleeps_first) pair = WithByteTaken();
  ep.Add(pair.server, EPOLLIN | EPOLLET, 2);
  REQUIRE(Get(sleeper) == 1);
}

TEST_CASE("epoll: who sleeps for the descriptor itself hears of the first socket") {
  const bool sleeps_first = SleepsFirst();
  const How how = GENERATE(How::kWait, How::kPoll, How::kSelect);
  Pair pair;
  if (!sleeps_first) pair = WithByteTaken();
  Epoll ep;
  std::atomic<pid_t> tid{0};
  auto sleeper = SleepFor(ep.fd(), how, tid);
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  if (sleeps_first) pair = WithByteTaken();
  ep.Add(pair.server, EPOLLIN, 2);
  REQUIRE(Get(sleeper) == 1);
  REQUIRE(ep.Wait() == Events{{2, EPOLLIN}});
}

TEST_CASE("epoll: who sleeps for a set around it hears of the first socket") {
  const bool sleeps_first = SleepsFirst();
  const How how = GENERATE(How::kWait, How::kPoll);
  Pair pair;
  if (!sleeps_first) pair = WithByteTaken();
  Epoll ep;
  Epoll outer;
  Fd copy(dup(ep.fd()));
  outer.Add(GENERATE(true, false) ? ep.fd() : copy.get(), EPOLLIN, 1);
  std::atomic<pid_t> tid{0};
  auto sleeper = SleepFor(outer.fd(), how, tid);
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  if (sleeps_first) pair = WithByteTaken();
  ep.Add(pair.server, EPOLLIN, 2);
  REQUIRE(Get(sleeper) == 1);
  REQUIRE(ep.Wait() == Events{{2, EPOLLIN}});
}

// The first socket has nothing yet; a third thread's call takes what is for the sleeper from the link.
TEST_CASE("epoll: who sleeps for a duplicate hears of what another thread leaves unread") {
  Epoll ep;
  Fd copy(dup(ep.fd()));
  std::atomic<pid_t> tid{0};
  const How how = GENERATE(How::kWait, How::kPoll);
  auto sleeper = SleepFor(copy, how, tid);
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  Pair pair = MakePair();
  ep.Add(pair.server, EPOLLIN | EPOLLET, 2);
  std::atomic<pid_t> reader_tid{0};
  auto reader = Async([&] {
    reader_tid = gettid();
    return ReceiveExactly(pair.server, 1);
  });
  REQUIRE(Eventually([&] { return reader_tid != 0 && IsAsleep(reader_tid); }));
  REQUIRE(Eventually([&] { return IsAsleep(tid); }));
  REQUIRE(SendAll(pair.client, "ab"));
  REQUIRE(Get(reader) == "a");
  REQUIRE(Get(sleeper) == 1);
}

TEST_CASE("epoll: a duplicate from before the first socket is the same set") {
  Epoll ep;
  Fd copy(dup(ep.fd()));
  Fd second(fcntl(copy, F_DUPFD_CLOEXEC, 0));
  Fd third(dup2(ep.fd(), second.get() + 1));
  REQUIRE(third == second.get() + 1);
  Pair pair = WithByteTaken();
  ep.Add(pair.server, EPOLLIN, 7);
  for (const int number : {copy.get(), second.get(), third.get()}) {
    epoll_event event{};
    REQUIRE(epoll_wait(number, &event, 1, kPatienceMs) == 1);
    REQUIRE(event.data.u64 == 7);
    REQUIRE(PollOne(number, POLLIN) == POLLIN);
    event = {.events = EPOLLIN, .data = {.u64 = 8}};
    REQUIRE(epoll_ctl(number, EPOLL_CTL_MOD, pair.server, &event) == 0);
    event = {.events = EPOLLIN, .data = {.u64 = 7}};
    REQUIRE(epoll_ctl(number, EPOLL_CTL_MOD, pair.server, &event) == 0);
  }
  ep = Epoll();
  second.reset();
  epoll_event event{};
  REQUIRE(epoll_wait(copy, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.data.u64 == 7);
  REQUIRE(ReceiveExactly(pair.server, 1) == "b");
  REQUIRE(epoll_wait(third, &event, 1, 0) == 0);
  REQUIRE(PollOne(third, POLLIN, 0) == 0);
}

}  // namespace
}  // namespace posix_test
