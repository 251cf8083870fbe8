// Half-closed for hours: nothing ends such a connection but its ends. What could are the kernel's timers, of
// which there are none, and those of a library, whose clock is this program's: clock_gettime() below goes
// ahead of the kernel's by as much as a case says.
#include <dlfcn.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>

#include "test/posix/kernel_timer.h"

namespace {

std::atomic<time_t> seconds_ahead{0};
// The library may have a thread before this program's constructors run.
std::atomic<int (*)(clockid_t, timespec*)> kernels_clock{nullptr};

[[gnu::constructor]] void FindClock() {
  kernels_clock = reinterpret_cast<int (*)(clockid_t, timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
}

}  // namespace

// In place of the C library's, for all of the process, its libraries included.
extern "C" [[gnu::visibility("default")]] int clock_gettime(clockid_t clock, timespec* time) noexcept {
  auto* const ask = kernels_clock.load();
  const int result =
      ask != nullptr ? ask(clock, time) : static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_MONOTONIC) time->tv_sec += seconds_ahead.load(std::memory_order_relaxed);
  return result;
}

namespace posix_test {
namespace {

constexpr time_t kHour = 3600;

// As another library sees it, which is to be told the same.
time_t Seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Whatever has to be done by then is done: a thread that sleeps until then is woken by having to see to
// another connection.
void LetHoursPass(time_t hours, Listener& listener) {
  const time_t before = Seconds();
  seconds_ahead += hours * kHour;
  REQUIRE(Seconds() >= before + hours * kHour);
  Pair other;
  other.client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  connect(other.client, listener.address.get(), listener.address.length);
  other.server.reset(accept(listener.fd, nullptr, nullptr));
  REQUIRE(WaitFor(other.client, POLLOUT));
  const size_t taken = Fill(other.client);
  SetNonblocking(other.server);
  REQUIRE(
      Eventually([&, drained = size_t{0}]() mutable { return (drained += Drain(other.server)) == taken; }));
}

TEST_CASE("half-closed: for hours, by the process's clock, and then each end says its last") {
  const bool by_client = GENERATE(true, false);
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  Fd& closed = by_client ? pair.client : pair.server;
  Fd& open = by_client ? pair.server : pair.client;
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, closed, &event) == 0);
  REQUIRE(SendAll(closed, "the question"));
  REQUIRE(shutdown(closed, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(open) == "the question");
  for (const time_t hours : {1, 5, 18, 7 * 24}) {
    LetHoursPass(hours, listener);
    REQUIRE(epoll_wait(ep, &event, 1, kQuietMs) == 0);
    REQUIRE(PollOne(closed, POLLIN | POLLOUT | POLLRDHUP, 0) == POLLOUT);
    REQUIRE(PollOne(open, POLLIN | POLLOUT | POLLRDHUP, 0) == (POLLIN | POLLOUT | POLLRDHUP));
    REQUIRE(GetOption(closed, SOL_SOCKET, SO_ERROR) == 0);
    REQUIRE(GetOption(open, SOL_SOCKET, SO_ERROR) == 0);
    REQUIRE(SendAll(open, "not yet"));
    REQUIRE(ReceiveExactly(closed, 7) == "not yet");
  }
  const std::string answer = Pattern(3'000'000);
  auto sender = Async([&] { return SendAll(open, answer) && shutdown(open, SHUT_WR) == 0; });
  REQUIRE(ReceiveToEnd(closed) == answer);
  REQUIRE(Get(sender));
}

TEST_CASE("half-closed: a receive that sleeps for hours") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  std::atomic<bool> ended{false};
  auto receiver = Async([&] {
    std::string all = ReceiveToEnd(pair.client);
    ended = true;
    return all;
  });
  REQUIRE(StillRunning(receiver));
  LetHoursPass(9, listener);
  poll(nullptr, 0, kQuietMs);
  REQUIRE(!ended);
  REQUIRE(SendAll(pair.server, "at last"));
  pair.server.reset();
  REQUIRE(receiver.get() == "at last");  // a wait with a deadline would be one by the clock that went ahead
}

// Keepalive's timer alone does not end a connection whose peer lives.
TEST_CASE("half-closed: the kernel runs no timer, or keepalive's, which finds the peer alive") {
  Pair pair = MakePair();
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(pair.server).empty());
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    REQUIRE(Eventually([&] { return KernelTimerOf(fd) == kNoTimer; }));
    SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 1);
    SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    REQUIRE(Eventually([&] { return KernelTimerOf(fd) == kKeepaliveTimer; }));
  }
  // Longer than it takes to find a dead one.
  REQUIRE(PollOne(pair.client, POLLIN | POLLRDHUP, 3500) == 0);
  REQUIRE((PollOne(pair.server, POLLOUT, 0) & (POLLERR | POLLHUP)) == 0);
  REQUIRE(SendAll(pair.server, "alive"));
  REQUIRE(ReceiveExactly(pair.client, 5) == "alive");
}

}  // namespace
}  // namespace posix_test
