// shutdown of a listener: it ends for all threads, and all processes, that have it.
#include <sys/select.h>

#include <atomic>
#include <ctime>

#include "test/posix/processes.h"
#include "test/posix/waiting/epoll_support.h"

namespace posix_test {
namespace {

struct Woken {
  int count = -1;
  int error = 0;
  uint32_t events = 0;
};

Woken SleepInPoll(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  const int count = poll(&entry, 1, kPatienceMs);
  return {.count = count, .error = count < 0 ? errno : 0, .events = static_cast<uint32_t>(entry.revents)};
}

Woken SleepInSelect(int fd) {
  fd_set read;
  FD_ZERO(&read);
  FD_SET(fd, &read);
  timeval time{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
  const int count = select(fd + 1, &read, nullptr, nullptr, &time);
  return {
      .count = count, .error = count < 0 ? errno : 0, .events = count > 0 && FD_ISSET(fd, &read) ? 1U : 0U};
}

Woken SleepInEpoll(int fd) {
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 7}};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return {};
  const int count = epoll_wait(epoll, &event, 1, kPatienceMs);
  return {.count = count, .error = count < 0 ? errno : 0, .events = count > 0 ? event.events : 0};
}

int ErrorOfAccept(int fd) {
  const Fd accepted(accept(fd, nullptr, nullptr));
  return accepted < 0 ? errno : 0;
}

int ErrorOfConnect(Address address) {
  const Fd client(socket(address.storage.ss_family, SOCK_STREAM, 0));
  return connect(client, address.get(), address.length) == 0 ? 0 : errno;
}

// The result of `sleep`, in a thread that slept when the listener was shut down.
template <typename Sleep>
auto ShutDownUnder(Listener& listener, int how, Sleep sleep) {
  std::atomic<pid_t> sleeper{0};
  auto asleep = Async([&] {
    sleeper = gettid();
    return sleep(listener.fd.get());
  });
  REQUIRE(Eventually([&] { return sleeper != 0 && IsAsleep(sleeper); }));
  REQUIRE(shutdown(listener.fd, how) == 0);
  return Get(asleep);
}

TEST_CASE("listener shutdown: a thread in poll hears of a hang-up", "[unconnected]") {
  const int how = GENERATE(int{SHUT_RDWR}, int{SHUT_RD});
  for (int round = 0; round < 20; ++round) {
    Listener listener = Listen();
    const Woken woken = ShutDownUnder(listener, how, SleepInPoll);
    REQUIRE(woken.count == 1);
    REQUIRE(woken.events == POLLHUP);
  }
}

TEST_CASE("listener shutdown: a thread in select finds it readable", "[unconnected]") {
  const int how = GENERATE(int{SHUT_RDWR}, int{SHUT_RD});
  for (int round = 0; round < 20; ++round) {
    Listener listener = Listen();
    const Woken woken = ShutDownUnder(listener, how, SleepInSelect);
    REQUIRE(woken.error == 0);
    REQUIRE(woken.count == 1);
    REQUIRE(woken.events == 1);
  }
}

TEST_CASE("listener shutdown: a thread in epoll_wait hears of a hang-up", "[unconnected]") {
  const int how = GENERATE(int{SHUT_RDWR}, int{SHUT_RD});
  for (int round = 0; round < 20; ++round) {
    Listener listener = Listen();
    const Woken woken = ShutDownUnder(listener, how, SleepInEpoll);
    REQUIRE(woken.count == 1);
    REQUIRE(woken.events == EPOLLHUP);
  }
}

TEST_CASE("listener shutdown: a thread in accept is told EINVAL", "[unconnected]") {
  const int how = GENERATE(int{SHUT_RDWR}, int{SHUT_RD});
  Listener listener = Listen();
  REQUIRE(ShutDownUnder(listener, how, ErrorOfAccept) == EINVAL);
}

TEST_CASE("listener shutdown: an epoll set goes on saying so, and stays of use for other sockets") {
  Listener listener = Listen();
  Epoll epoll;
  epoll.Add(listener.fd, EPOLLIN, 1);
  REQUIRE(epoll.Quiet());
  REQUIRE(shutdown(listener.fd, SHUT_RDWR) == 0);
  for (int i = 0; i < 3; ++i) REQUIRE(epoll.Wait() == Events{{1, EPOLLHUP}});
  epoll.Mod(listener.fd, EPOLLIN, 2);
  REQUIRE(epoll.Wait() == Events{{2, EPOLLHUP}});
  epoll.Del(listener.fd);
  REQUIRE(epoll.Quiet());
  Listener other = Listen();
  epoll.Add(other.fd, EPOLLIN, 3);
  const Pair pair = ConnectTo(other);
  epoll.Add(pair.server, EPOLLIN, 4);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(epoll.Wait() == Events{{4, EPOLLIN}});
}

TEST_CASE("listener shutdown: one that listens again makes its callers wait as before", "[plain]") {
  Listener listener = Listen();
  REQUIRE(ShutDownUnder(listener, SHUT_RD, ErrorOfAccept) == EINVAL);
  REQUIRE(listen(listener.fd, 8) == 0);
  REQUIRE_FALSE(IsNonblocking(listener.fd));
  auto accepting = Async([&] { return ErrorOfAccept(listener.fd); });
  REQUIRE(StillRunning(accepting));
  REQUIRE(ErrorOfConnect(LocalOf(listener.fd)) == 0);
  REQUIRE(Get(accepting) == 0);
}

TEST_CASE("listener shutdown: in a child it ends the parent's listener, too", "[refused]") {
  const int how = GENERATE(int{SHUT_RDWR}, int{SHUT_RD});
  Listener listener = Listen();
  { const Pair pair = ConnectTo(listener); }
  REQUIRE(ExitedWith(Reap(Fork([&] { return shutdown(listener.fd, how) == 0 ? 0 : 1; })), 0));
  REQUIRE(ErrorOfConnect(listener.address) == ECONNREFUSED);
  REQUIRE(ErrorOfAccept(listener.fd) == EINVAL);
  REQUIRE(PollOne(listener.fd, POLLIN, 0) == POLLHUP);
  REQUIRE_ERRNO(shutdown(listener.fd, how), ENOTCONN);
}

TEST_CASE("listener shutdown: in a child it resets who waits for the parent's accept") {
  Listener listener = Listen();
  const Fd client = Connected(listener);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  REQUIRE(ExitedWith(Reap(Fork([&] { return shutdown(listener.fd, SHUT_RDWR) == 0 ? 0 : 1; })), 0));
  char c;
  REQUIRE_ERRNO(recv(client, &c, 1, 0), ECONNRESET);
  SetNonblocking(listener.fd);
  REQUIRE(ErrorOfAccept(listener.fd) == EINVAL);
}

// What a process sees that sleeps on its parent's listener; its exit status is 0 if `sleep` says what
// `expected` does.
template <typename Sleep, typename Expected>
void ShutDownUnderChild(Sleep sleep, Expected expected) {
  Listener listener = Listen();
  { const Pair pair = ConnectTo(listener); }
  const pid_t sleeper = Fork([&] {
    if (!expected(sleep(listener.fd.get()))) return 1;
    return ErrorOfAccept(listener.fd) == EINVAL ? 0 : 2;
  });
  REQUIRE(Eventually([&] { return IsAsleep(sleeper); }));
  REQUIRE(shutdown(listener.fd, SHUT_RDWR) == 0);
  REQUIRE(ErrorOfConnect(listener.address) == ECONNREFUSED);
  REQUIRE(ExitedWith(Reap(sleeper), 0));
}

TEST_CASE("listener shutdown: a child in poll hears of a hang-up", "[refused]") {
  ShutDownUnderChild(SleepInPoll,
                     [](const Woken& woken) { return woken.count == 1 && woken.events == POLLHUP; });
}

TEST_CASE("listener shutdown: a child in select finds it readable", "[refused]") {
  ShutDownUnderChild(SleepInSelect, [](const Woken& woken) { return woken.count == 1 && woken.events == 1; });
}

TEST_CASE("listener shutdown: a child in epoll_wait hears of a hang-up", "[refused]") {
  ShutDownUnderChild(SleepInEpoll,
                     [](const Woken& woken) { return woken.count == 1 && woken.events == EPOLLHUP; });
}

TEST_CASE("listener shutdown: a child in accept is told EINVAL", "[refused]") {
  ShutDownUnderChild(ErrorOfAccept, [](int error) { return error == EINVAL; });
}

// What is shut down here stays open there, and is to keep nobody here busy.
TEST_CASE("listener shutdown: an epoll set sleeps on while a child still has the listener") {
  Listener listener = Listen();
  Epoll epoll;
  epoll.Add(listener.fd, EPOLLIN, 1);
  { const Pair pair = ConnectTo(listener); }
  REQUIRE(epoll.Quiet());
  Pipe end;
  const pid_t child = Fork([&] { return end.Hear() ? 0 : 1; });
  REQUIRE(shutdown(listener.fd, SHUT_RDWR) == 0);
  REQUIRE(epoll.Wait() == Events{{1, EPOLLHUP}});
  epoll.Del(listener.fd);
  timespec before, after;
  REQUIRE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before) == 0);
  REQUIRE(epoll.Quiet(400));
  REQUIRE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after) == 0);
  REQUIRE((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1'000'000 < 100);
  end.Tell();
  REQUIRE(ExitedWith(Reap(child), 0));
}

TEST_CASE("listener shutdown: what another process shut down may listen again", "[mixed]") {
  Listener listener = Listen();
  { const Pair pair = ConnectTo(listener); }
  REQUIRE(ExitedWith(Reap(Fork([&] { return shutdown(listener.fd, SHUT_RDWR) == 0 ? 0 : 1; })), 0));
  REQUIRE(listen(listener.fd, 8) == 0);
  auto accepting = Async([&] { return ErrorOfAccept(listener.fd); });
  REQUIRE(ErrorOfConnect(LocalOf(listener.fd)) == 0);
  REQUIRE(Get(accepting) == 0);
}

}  // namespace
}  // namespace posix_test
