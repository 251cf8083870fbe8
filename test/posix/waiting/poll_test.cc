// poll, ppoll, select and pselect over sockets, listeners and everything else.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/timerfd.h>

#include <algorithm>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"
#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

TEST_CASE("poll: a fresh connection is writable only") {
  Pair pair = MakePair();
  REQUIRE(PollOne(pair.client, POLLIN | POLLOUT, 0) == POLLOUT);
  REQUIRE(PollOne(pair.server, POLLIN | POLLOUT, 0) == POLLOUT);
  REQUIRE(PollOne(pair.client, POLLIN, 0) == 0);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(PollOne(pair.server, POLLIN) == POLLIN);
  REQUIRE(PollOne(pair.server, POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM, 0) ==
          (POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM));
  REQUIRE(PollOne(pair.server, 0, 0) == 0);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  REQUIRE(PollOne(pair.server, POLLIN, 0) == 0);
}

TEST_CASE("poll: sockets that are not connected", "[unconnected]") {
  Fd fresh = TcpSocket();
  REQUIRE(PollOne(fresh, POLLIN | POLLOUT, 0) == (POLLOUT | POLLHUP));
  pollfd p{100000, POLLIN, 0};
  REQUIRE(poll(&p, 1, 0) == 1);
  REQUIRE(p.revents == POLLNVAL);
  p = {-1, POLLIN, 55};
  REQUIRE(poll(&p, 1, 0) == 0);
  REQUIRE(p.revents == 0);
}

TEST_CASE("poll: a time-out takes its time") {
  Pair pair = MakePair();
  Stopwatch watch;
  REQUIRE(PollOne(pair.server, POLLIN, 80) == 0);
  REQUIRE(watch.ms() >= 79);
  REQUIRE(watch.ms() < kAtOnceMs);
  pollfd p{pair.server, POLLIN, 0};
  const timespec ts{0, 80'000'000};
  Stopwatch second;
  REQUIRE(ppoll(&p, 1, &ts, nullptr) == 0);
  REQUIRE(second.ms() >= 79);
  REQUIRE(ts.tv_nsec == 80'000'000);
  const timespec wrong{0, 2'000'000'000};
  REQUIRE_ERRNO(ppoll(&p, 1, &wrong, nullptr), EINVAL);
}

TEST_CASE("poll: sockets mixed with pipes and eventfds and timers and listeners") {
  Pair pair = MakePair();
  Listener listener = Listen();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]), event(eventfd(0, EFD_CLOEXEC)), timer(timerfd_create(CLOCK_MONOTONIC, 0));
  auto all = [&] {
    return std::vector<pollfd>{{pair.server, POLLIN, 0}, {in, POLLIN, 0},          {event, POLLIN, 0},
                               {timer, POLLIN, 0},       {listener.fd, POLLIN, 0}, {pair.client, POLLIN, 0}};
  };
  auto wait = [&](int timeout) {
    auto p = all();
    const int n = poll(p.data(), p.size(), timeout);
    std::string ready;
    for (const pollfd& one : p) ready += one.revents == 0 ? '-' : one.revents == POLLIN ? 'I' : '?';
    return std::to_string(n) + ready;
  };
  REQUIRE(wait(0) == "0------");
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(wait(kPatienceMs) == "1I-----");
  REQUIRE(write(out, "y", 1) == 1);
  REQUIRE(wait(kPatienceMs) == "2II----");
  const uint64_t one = 1;
  REQUIRE(write(event, &one, sizeof(one)) == sizeof(one));
  REQUIRE(wait(kPatienceMs) == "3III---");
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  char c;
  REQUIRE(read(in, &c, 1) == 1);
  uint64_t value;
  REQUIRE(read(event, &value, sizeof(value)) == sizeof(value));
  const itimerspec soon{{0, 0}, {0, 20'000'000}};
  REQUIRE(timerfd_settime(timer, 0, &soon, nullptr) == 0);
  REQUIRE(wait(kPatienceMs) == "1---I--");
  REQUIRE(read(timer, &value, sizeof(value)) == sizeof(value));
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(wait(kPatienceMs) == "1----I-");
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(wait(0) == "0------");
  REQUIRE(SendAll(pair.server, "z"));
  REQUIRE(wait(kPatienceMs) == "1-----I");
}

TEST_CASE("poll: wakes a sleeping thread for every kind of change") {
  Pair pair = MakePair();
  Listener listener = Listen();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  auto sleeper = [&] {
    return Async([&] {
      pollfd p[3] = {{pair.server, POLLIN, 0}, {in, POLLIN, 0}, {listener.fd, POLLIN, 0}};
      if (poll(p, 3, kPatienceMs) != 1) return -1;
      return p[0].revents != 0 ? 0 : p[1].revents != 0 ? 1 : 2;
    });
  };
  auto first = sleeper();
  REQUIRE(StillRunning(first));
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(first) == 0);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  auto second = sleeper();
  REQUIRE(StillRunning(second));
  REQUIRE(write(out, "x", 1) == 1);
  REQUIRE(Get(second) == 1);
  char c;
  REQUIRE(read(in, &c, 1) == 1);
  auto third = sleeper();
  REQUIRE(StillRunning(third));
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(Get(third) == 2);
}

TEST_CASE("poll: another thread drains what woke the first") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  auto poller = Async([&] {
    int wakes = 0;
    Stopwatch watch;
    for (;;) {
      pollfd p{pair.server, POLLIN, 0};
      const int n = poll(&p, 1, kPatienceMs);
      if (n != 1 || watch.ms() > kPatienceMs) return -1;
      if ((p.revents & (POLLHUP | POLLRDHUP)) != 0) return wakes;
      char c;
      const ssize_t got = recv(pair.server, &c, 1, MSG_PEEK);
      if (got == 0) return wakes;
      ++wakes;
    }
  });
  auto drainer = Async([&] {
    size_t total = 0;
    char room[100];
    Stopwatch watch;
    while (total < 20'000 && watch.ms() < kPatienceMs) {
      const ssize_t n = recv(pair.server, room, sizeof(room), 0);
      if (n > 0) total += static_cast<size_t>(n);
      if (n < 0) PollOne(pair.server, POLLIN, 5);
    }
    return total;
  });
  for (int i = 0; i < 200; ++i) REQUIRE(SendAll(pair.client, Pattern(100)));
  REQUIRE(Get(drainer) == 20'000);
  pair.client.reset();
  REQUIRE(Get(poller) >= 0);
}

TEST_CASE("poll: more descriptors than FD_SETSIZE") {
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur < 2600)
    return sdp::test::Skipped("no more than " + std::to_string(limit.rlim_cur) + " descriptors");
  std::vector<Fd> fillers;
  for (int i = 0; i < 1100; ++i) fillers.emplace_back(dup(STDERR_FILENO));
  Pair pair = MakePair();
  REQUIRE(pair.server > FD_SETSIZE);
  std::vector<pollfd> p;
  for (int i = 0; i < 1100; ++i) p.push_back({fillers[i], 0, 0});
  p.push_back({pair.server, POLLIN, 0});
  REQUIRE(poll(p.data(), p.size(), 0) == 0);
  REQUIRE(SendAll(pair.client, "far"));
  REQUIRE(poll(p.data(), p.size(), kPatienceMs) == 1);
  REQUIRE(p.back().revents == POLLIN);
  REQUIRE(ReceiveExactly(pair.server, 3) == "far");
}

TEST_CASE("poll: what is writable takes something") {
  Listener listener = Listen();
  for (size_t size = 1000; size < 40'000; size += 3000) {
    Pair pair = ConnectTo(listener);
    SetNonblocking(pair.client);
    const std::string data = Pattern(size);
    size_t sent = 0;
    while (sent < 40'000'000 && (PollOne(pair.client, POLLOUT, 0) & POLLOUT) != 0) {
      const ssize_t n = send(pair.client, data.data(), size, 0);
      CAPTURE(size, sent);
      REQUIRE(n > 0);
      sent += static_cast<size_t>(n);
    }
    REQUIRE(ReceiveExactly(pair.server, sent).size() == sent);
  }
}

TEST_CASE("poll: fill until it would block and then be told of room") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  SetNonblocking(pair.server);
  const size_t filled = Fill(pair.client);
  REQUIRE(filled > 0);
  REQUIRE(PollOne(pair.client, POLLIN | POLLOUT, kQuietMs) == 0);
  auto poller = Async([&] { return PollOne(pair.client, POLLOUT); });
  REQUIRE(StillRunning(poller));
  size_t drained = 0;
  REQUIRE(Eventually([&] { return (drained += Drain(pair.server)) == filled; }));
  REQUIRE(Get(poller) == POLLOUT);
  REQUIRE(send(pair.client, "x", 1, 0) == 1);
}

TEST_CASE("poll: ppoll lets a blocked signal in only while it waits") {
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
  Pair pair = MakePair();
  raise(SIGUSR1);
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE(seen == 0);
  pollfd p{pair.server, POLLIN, 0};
  const timespec ts{5, 0};
  REQUIRE_ERRNO(ppoll(&p, 1, &ts, &open), EINTR);
  REQUIRE(seen == 1);
  seen = 0;
  raise(SIGUSR1);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(pair.server, &set);
  REQUIRE_ERRNO(pselect(pair.server + 1, &set, nullptr, nullptr, &ts, &open), EINTR);
  REQUIRE(seen == 1);
  pthread_sigmask(SIG_UNBLOCK, &block, nullptr);
}

TEST_CASE("poll: an epoll descriptor with a socket in it") {
  Pair pair = MakePair();
  Fd ep(epoll_create1(0));
  epoll_event event{EPOLLIN, {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(PollOne(ep, POLLIN, 0) == 0);
  auto poller = Async([&] { return PollOne(ep, POLLIN); });
  REQUIRE(StillRunning(poller));
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(poller) == POLLIN);
  REQUIRE(PollOne(ep, POLLIN, 0) == POLLIN);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  REQUIRE(PollOne(ep, POLLIN, 0) == 0);
}

TEST_CASE("select: readable and writable and the time left") {
  Pair pair = MakePair();
  fd_set read_set, write_set, except_set;
  FD_ZERO(&read_set);
  FD_ZERO(&write_set);
  FD_ZERO(&except_set);
  FD_SET(pair.server, &read_set);
  FD_SET(pair.server, &except_set);
  FD_SET(pair.client, &write_set);
  timeval tv{20, 0};
  const int nfds = std::max(pair.server.get(), pair.client.get()) + 1;
  REQUIRE(select(nfds, &read_set, &write_set, &except_set, &tv) == 1);
  REQUIRE_FALSE(FD_ISSET(pair.server, &read_set));
  REQUIRE_FALSE(FD_ISSET(pair.server, &except_set));
  REQUIRE(FD_ISSET(pair.client, &write_set));
  REQUIRE(tv.tv_sec >= 10);

  FD_SET(pair.server, &read_set);
  tv = {0, 80'000};
  Stopwatch watch;
  REQUIRE(select(nfds, &read_set, nullptr, nullptr, &tv) == 0);
  REQUIRE(watch.ms() >= 79);
  REQUIRE(tv.tv_sec == 0);
  REQUIRE(tv.tv_usec == 0);
  REQUIRE_FALSE(FD_ISSET(pair.server, &read_set));

  FD_SET(pair.server, &read_set);
  auto sender = Async([&] {
    poll(nullptr, 0, 100);
    return SendAll(pair.client, "x");
  });
  tv = {20, 0};
  REQUIRE(select(nfds, &read_set, nullptr, nullptr, &tv) == 1);
  REQUIRE(tv.tv_sec >= 10);
  REQUIRE(tv.tv_sec < 20);
  REQUIRE(Get(sender));
  REQUIRE(FD_ISSET(pair.server, &read_set));
}

TEST_CASE("select: a pipe and a listener and a socket") {
  Pair pair = MakePair();
  Listener listener = Listen();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  auto ready = [&](int timeout_ms) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair.server, &set);
    FD_SET(listener.fd, &set);
    FD_SET(in, &set);
    const timespec ts{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000};
    const int n = pselect(std::max({pair.server.get(), listener.fd.get(), in.get()}) + 1, &set, nullptr,
                          nullptr, &ts, nullptr);
    return n * 1000 + (FD_ISSET(pair.server, &set) ? 100 : 0) + (FD_ISSET(listener.fd, &set) ? 10 : 0) +
           (FD_ISSET(in, &set) ? 1 : 0);
  };
  REQUIRE(ready(0) == 0);
  REQUIRE(write(out, "p", 1) == 1);
  REQUIRE(ready(kPatienceMs) == 1001);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(ready(kPatienceMs) == 2101);
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  REQUIRE(ready(kPatienceMs) == 3111);
}

// As libev has them.
TEST_CASE("select: sets that are shorter or longer than an fd_set") {
  using Word = unsigned long;
  constexpr int kBits = 8 * sizeof(Word);
  const int number = GENERATE(20, 1500);
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur <= static_cast<rlim_t>(number))
    return sdp::test::SkippedInPart("no descriptor may have the number " + std::to_string(number));
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "x"));
  Fd fd(fcntl(pair.server, F_DUPFD_CLOEXEC, number));
  REQUIRE(fd >= number);
  const int count = fd + 1;
  const auto size = static_cast<size_t>((count + kBits - 1) / kBits);
  const Word kGuard = 0x0123456789abcdef;
  std::vector<Word> read_set(size + 16, kGuard), write_set(size + 16, kGuard), except_set(size + 16, kGuard);
  const Word bit = Word{1} << (fd % kBits);
  for (auto* set : {&read_set, &write_set, &except_set}) {
    std::fill_n(set->begin(), size, Word{0});
    (*set)[size - 1] = bit;
  }
  const auto as_set = [](std::vector<Word>& words) { return reinterpret_cast<fd_set*>(words.data()); };
  timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
  REQUIRE(WaitFor(fd, POLLIN));
  REQUIRE(select(count, as_set(read_set), as_set(write_set), as_set(except_set), &patience) == 2);
  REQUIRE(read_set[size - 1] == bit);
  REQUIRE(write_set[size - 1] == bit);
  REQUIRE(except_set[size - 1] == 0);
  for (const auto* set : {&read_set, &write_set, &except_set}) {
    REQUIRE(std::all_of(set->begin() + static_cast<std::ptrdiff_t>(size), set->end(),
                        [&](Word word) { return word == kGuard; }));
  }
}

TEST_CASE("select: errors") {
  Pair pair = MakePair();
  fd_set set;
  FD_ZERO(&set);
  FD_SET(pair.server, &set);
  timeval tv{-1, 0};
  REQUIRE_ERRNO(select(pair.server + 1, &set, nullptr, nullptr, &tv), EINVAL);
  tv = {0, 0};
  REQUIRE_ERRNO(select(-1, &set, nullptr, nullptr, &tv), EINVAL);
  FD_ZERO(&set);
  // Beyond the numbers that the process ever used the kernel does not look.
  FD_SET(40, &set);
  FD_SET(pair.server, &set);
  REQUIRE_ERRNO(select(41, &set, nullptr, nullptr, &tv), EBADF);
}

TEST_CASE("poll, select, epoll_wait: memory that is not there, or not to be written to") {
  if (kUnderAsan || kUnderTsan) return Impossible(why::kInterceptors);
  Pair pair = MakePair();
  Fd epoll(epoll_create1(0));
  epoll_event event{.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  const int protection = GENERATE(PROT_NONE, PROT_READ);
  constexpr size_t kPage = 4096;
  void* const page = mmap(nullptr, kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  const timespec now{};
  timeval at_once{};
  for (void* const bad : {page, reinterpret_cast<void*>(8), reinterpret_cast<void*>(~uintptr_t{0xfff})}) {
    auto* const fds = static_cast<pollfd*>(bad);
    auto* const set = static_cast<fd_set*>(bad);
    REQUIRE_ERRNO(poll(fds, 1, 0), EFAULT);
    REQUIRE_ERRNO(ppoll(fds, 1, &now, nullptr), EFAULT);
    REQUIRE_ERRNO(select(pair.server + 1, set, nullptr, nullptr, &at_once), EFAULT);
    REQUIRE_ERRNO(pselect(pair.server + 1, nullptr, nullptr, set, &now, nullptr), EFAULT);
    REQUIRE_ERRNO(epoll_wait(epoll, static_cast<epoll_event*>(bad), 1, 0), EFAULT);
  }
  REQUIRE(munmap(page, kPage) == 0);
  REQUIRE(epoll_wait(epoll, &event, 1, 0) == 1);
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
}

TEST_CASE("select: as a timer without descriptors", "[unconnected]") {
  timeval tv{0, 30'000};
  Stopwatch watch;
  REQUIRE(select(0, nullptr, nullptr, nullptr, &tv) == 0);
  REQUIRE(watch.ms() >= 29);
  REQUIRE(poll(nullptr, 0, 10) == 0);
}

// Many programs take a hang-up for an error, and close what they have not read.
TEST_CASE("poll, epoll_wait: a peer that has sent, closed and gone is no hang-up") {
  Listener listener = Listen();
  const pid_t client = Fork([&] {
    Fd fd(TcpSocket());
    if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
    return SendAll(fd, "last words") ? 0 : 2;
  });
  Fd fd(accept(listener.fd, nullptr, nullptr));
  REQUIRE(fd >= 0);
  REQUIRE(ExitedWith(Reap(client), 0));
  Fd set(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
  const auto told = [&] { return epoll_wait(set, &event, 1, kPatienceMs) == 1 ? event.events : 0; };
  REQUIRE(Eventually([&] { return (told() & EPOLLRDHUP) != 0; }));
  REQUIRE(told() == (EPOLLIN | EPOLLRDHUP));
  REQUIRE(PollOne(fd, POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
  REQUIRE(ReceiveToEnd(fd) == "last words");
  REQUIRE(told() == (EPOLLIN | EPOLLRDHUP));
  REQUIRE(PollOne(fd, POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
  REQUIRE(shutdown(fd, SHUT_WR) == 0);
  REQUIRE(Eventually([&] { return (PollOne(fd, POLLIN) & POLLHUP) != 0; }));
  REQUIRE((told() & EPOLLHUP) != 0);
}

TEST_CASE("poll: a socket that is always ready hides none of the others") {
  Pair ready = MakePair();
  REQUIRE(SendAll(ready.client, "x"));
  REQUIRE(PollOne(ready.server, POLLIN) == POLLIN);
  Pair quiet = MakePair();
  Listener listener = Listen();
  const pid_t peer = Fork([&] {
    Fd fd(TcpSocket());
    if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
    for (;;) pause();
  });
  Fd doomed(accept(listener.fd, nullptr, nullptr));
  REQUIRE(doomed >= 0);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  std::array<pollfd, 5> all{{{ready.server, POLLIN, 0},
                             {quiet.server, POLLIN, 0},
                             {doomed, POLLIN, 0},
                             {listener.fd, POLLIN, 0},
                             {in, POLLIN, 0}}};
  const size_t count = GENERATE(4, 5);  // with a pipe the kernel is asked each time
  const auto is_told = [&](size_t i) {
    return Eventually([&] {
      return poll(all.data(), count, kPatienceMs) > 0 && all[0].revents == POLLIN && all[i].revents != 0;
    });
  };
  REQUIRE(poll(all.data(), count, kPatienceMs) == 1);
  REQUIRE(all[0].revents == POLLIN);
  REQUIRE(SendAll(quiet.client, "y"));
  REQUIRE(is_told(1));
  REQUIRE(kill(peer, SIGKILL) == 0);
  REQUIRE(is_told(2));
  REQUIRE(WIFSIGNALED(Reap(peer)));
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(is_told(3));
  if (count < 5) return;
  REQUIRE(write(out, "z", 1) == 1);
  REQUIRE(poll(all.data(), count, kPatienceMs) == 5);
}

TEST_CASE("poll: of two sets that are asked in turn, each is told of all that is in it") {
  Pair first = MakePair(), second = MakePair();
  Listener quiet = Listen(), called = Listen();
  REQUIRE(SendAll(first.client, "x"));
  REQUIRE(SendAll(second.client, "y"));
  const auto ready = [](int socket, int listener) {
    std::array<pollfd, 2> set{{{socket, POLLIN, 0}, {listener, POLLIN, 0}}};  // at one address in both
    return poll(set.data(), set.size(), kPatienceMs);
  };
  Fd client = TcpSocket();
  REQUIRE(connect(client, called.address.get(), called.address.length) == 0);
  REQUIRE(
      Eventually([&] { return ready(first.server, quiet.fd) == 1 && ready(second.server, called.fd) == 2; }));
}

TEST_CASE("select: a hang-up of one descriptor does not hide urgent data of another") {
  Pair over = MakePair();
  Pair pair = MakePair();
  REQUIRE(shutdown(over.server, SHUT_RDWR) == 0);
  REQUIRE(shutdown(over.client, SHUT_RDWR) == 0);
  REQUIRE(Eventually([&] { return (PollOne(over.server, 0, 0) & POLLHUP) != 0; }));
  auto selecting = Async([&] {
    fd_set except;
    FD_ZERO(&except);
    FD_SET(over.server, &except);
    FD_SET(pair.server, &except);
    timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
    const int result =
        select(std::max<int>(over.server, pair.server) + 1, nullptr, nullptr, &except, &patience);
    return result == 1 && FD_ISSET(pair.server, &except);
  });
  REQUIRE(StillRunning(selecting));
  REQUIRE(send(pair.client, "u", 1, MSG_OOB) == 1);
  REQUIRE(Get(selecting));
}

}  // namespace
}  // namespace posix_test
