// A thread has been asleep in a receive since before its process forked, and the child uses the connection.
#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

// A thread in a receive of up to `size` bytes.
class Sleeper {
 public:
  Sleeper(int fd, size_t size) {
    got_ = Async([this, fd, size] {
      thread_ = pthread_self();
      tid_ = gettid();
      std::string got(size, 0);
      const ssize_t n = recv(fd, got.data(), size, 0);
      if (n < 0) return std::string(strerrorname_np(errno));
      got.resize(static_cast<size_t>(n));
      return got;
    });
  }
  bool FallsAsleep() {
    return Eventually([&] { return tid_ != 0 && IsAsleep(tid_); });
  }
  bool asleep() { return StillRunning(got_); }
  std::string Got() { return Get(got_); }
  void Interrupt() { REQUIRE(pthread_kill(thread_, SIGUSR1) == 0); }

 private:
  std::atomic<pid_t> tid_{0};
  pthread_t thread_{};
  std::future<std::string> got_;
};

volatile pid_t forked = -1;

TEST_CASE("fork: a child sends while a thread of its parent sleeps in a receive") {
  const bool waits = GENERATE(false, true);
  Pair pair = MakePair();
  Sleeper sleeper(pair.server, 100);
  REQUIRE(sleeper.FallsAsleep());
  for (int i = 0; i < 2; ++i) {
    const pid_t pid = Fork([&] {
      pair.client.reset();
      if (waits) return SendAll(pair.server, "child") ? 0 : 1;
      if (send(pair.server, "child", 5, MSG_DONTWAIT) != 5) return 2;
      char c;
      if (recv(pair.server, &c, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN) return 3;
      return PollOne(pair.server, POLLIN | POLLOUT) == POLLOUT ? 0 : 4;
    });
    REQUIRE(ReceiveExactly(pair.client, 5) == "child");
    REQUIRE(ExitedWith(Reap(pid), 0));
    REQUIRE(SendAll(pair.server, "parent"));
    REQUIRE(ReceiveExactly(pair.client, 6) == "parent");
  }
  REQUIRE(sleeper.asleep());
  REQUIRE(SendAll(pair.client, "for the sleeper"));
  REQUIRE(sleeper.Got() == "for the sleeper");
}

TEST_CASE(
    "fork: a child writes much while a thread of its parent reads much, asleep when the child was made") {
  const std::string up = Pattern(6'000'000, 3), down = Pattern(5'000'000, 4);
  RemoteClient remote = ServeClient([&](int fd) {
    // The child's, while the parent's thread sleeps.
    return ReceiveExactly(fd, 1) == down.substr(0, 1) ? Exchange(fd, up, down.substr(1)) : 2;
  });
  const Fd& server = remote.server;
  std::atomic<pid_t> tid{0};
  auto reader = Async([&] {
    tid = gettid();
    std::string got(up.size(), 0);
    size_t size = 0;
    for (ssize_t n; (n = recv(server, got.data() + size, got.size() - size, 0)) > 0;)
      size += static_cast<size_t>(n);
    got.resize(size);
    return got;
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  const pid_t writer = Fork([&] { return SendAll(server, down) && shutdown(server, SHUT_WR) == 0 ? 0 : 1; });
  REQUIRE(ExitedWith(Reap(writer), 0));
  REQUIRE(Hash(Get(reader)) == Hash(up));
  remote.server.reset();
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

TEST_CASE("fork: what the parent's sleeping thread does not take is for the child") {
  Pair pair = MakePair();
  Sleeper sleeper(pair.server, 4);
  REQUIRE(sleeper.FallsAsleep());
  Pipe begin;
  const pid_t pid = Fork([&] {
    pair.client.reset();
    if (!SendAll(pair.server, "go") || !begin.Hear()) return 1;
    if (ReceiveExactly(pair.server, 4) != "two ") return 2;
    return ReceiveExactly(pair.server, 5) == "three" && SendAll(pair.server, "done") ? 0 : 3;
  });
  REQUIRE(ReceiveExactly(pair.client, 2) == "go");
  REQUIRE(SendAll(pair.client, "one two "));
  REQUIRE(sleeper.Got() == "one ");
  begin.Tell();
  REQUIRE(SendAll(pair.client, "three"));
  REQUIRE(ReceiveExactly(pair.client, 4) == "done");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: a child waits for data that its parent's interrupted thread has not taken") {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  const bool polls = GENERATE(false, true);
  Pair pair = MakePair();
  Sleeper sleeper(pair.server, 4);
  REQUIRE(sleeper.FallsAsleep());
  const pid_t pid = Fork([&] {
    pair.client.reset();
    if (!SendAll(pair.server, "go")) return 1;
    if (polls && !WaitFor(pair.server, POLLIN)) return 2;
    return ReceiveExactly(pair.server, 4) == "data" ? 0 : 3;
  });
  REQUIRE(ReceiveExactly(pair.client, 2) == "go");
  sleeper.Interrupt();
  REQUIRE(sleeper.Got() == "EINTR");
  REQUIRE(SendAll(pair.client, "data"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: a child ends the stream under its parent's sleeping thread") {
  const int how = GENERATE(int{SHUT_WR}, int{SHUT_RDWR});
  Pair pair = MakePair();
  Sleeper sleeper(pair.server, 100);
  REQUIRE(sleeper.FallsAsleep());
  const pid_t pid = Fork([&] {
    pair.client.reset();
    return SendAll(pair.server, "last") && shutdown(pair.server, how) == 0 ? 0 : 1;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(ReceiveToEnd(pair.client) == "last");
  if (how == SHUT_WR) {
    REQUIRE(sleeper.asleep());
    REQUIRE(SendAll(pair.client, "answer"));
  }
  REQUIRE(sleeper.Got() == (how == SHUT_WR ? "answer" : ""));
}

TEST_CASE(
    "fork: the end of the connection, and a reset, reach the parent's sleeping thread and then the child") {
  const bool resets = GENERATE(false, true);
  Pair pair = MakePair();
  Sleeper sleeper(pair.server, 100);
  REQUIRE(sleeper.FallsAsleep());
  Pipe begin;  // an error is told once, to whoever comes first
  const pid_t pid = Fork([&] {
    pair.client.reset();
    if (!SendAll(pair.server, "go") || !begin.Hear()) return 1;
    char c;
    return WaitFor(pair.server, POLLIN) && recv(pair.server, &c, 1, 0) == 0 ? 0 : 2;
  });
  REQUIRE(ReceiveExactly(pair.client, 2) == "go");
  const linger none{.l_onoff = resets ? 1 : 0, .l_linger = 0};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
  pair.client.reset();
  REQUIRE(sleeper.Got() == (resets ? "ECONNRESET" : ""));
  begin.Tell();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: its own end of reading ends the parent's sleeping receive, a child or not") {
  Pair pair = MakePair();
  Sleeper sleeper(pair.server, 100);
  REQUIRE(sleeper.FallsAsleep());
  Pipe over;
  const pid_t pid = Fork([&] {
    pair.client.reset();
    return SendAll(pair.server, "go") && over.Hear() ? 0 : 1;
  });
  REQUIRE(ReceiveExactly(pair.client, 2) == "go");
  auto peer = Async([&] { return ReceiveExactly(pair.client, 2); });
  REQUIRE(shutdown(pair.server, SHUT_RD) == 0);
  REQUIRE(sleeper.Got() == "");
  REQUIRE(SendAll(pair.server, "up"));
  REQUIRE(Get(peer) == "up");
  over.Tell();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: in a handler that interrupts a receive, which goes on in both") {
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
  struct sigaction action {};
  static int told = -1;
  action.sa_handler = [](int) {
    forked = fork();
    if (forked > 0) (void)!write(told, "x", 1);
  };
  action.sa_flags = SA_RESTART;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  Pipe both;
  told = both.out;
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    pair.client.reset();
    const pid_t tid = gettid();
    const pthread_t thread = pthread_self();
    std::thread([=] {
      if (Eventually([=] { return IsAsleep(tid); })) pthread_kill(thread, SIGUSR1);
    }).detach();
    // Each of the two has one, be it which it may.
    char c = 0;
    if (recv(pair.server, &c, 1, 0) != 1) _exit(1);
    if (send(pair.server, &c, 1, 0) != 1) _exit(2);
    if (forked == 0) _exit(0);
    return ExitedWith(Reap(forked), 0) ? 0 : 3;
  });
  pair.server.reset();
  REQUIRE(both.Hear());
  REQUIRE(SendAll(pair.client, "a"));
  REQUIRE(ReceiveExactly(pair.client, 1) == "a");
  REQUIRE(SendAll(pair.client, "b"));
  REQUIRE(ReceiveExactly(pair.client, 1) == "b");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: in a handler that interrupts a receive, which goes on in neither") {
  struct sigaction action {};
  action.sa_handler = [](int) {
    const int saved = errno;
    forked = fork();
    errno = saved;
  };
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    pair.client.reset();
    const pid_t tid = gettid();
    const pthread_t thread = pthread_self();
    std::thread([=] {
      if (Eventually([=] { return IsAsleep(tid); })) pthread_kill(thread, SIGUSR1);
    }).detach();
    char c;
    const bool interrupted = recv(pair.server, &c, 1, 0) == -1 && errno == EINTR;
    if (forked == 0) _exit(interrupted ? 0 : 1);
    if (!interrupted || !ExitedWith(Reap(forked), 0)) return 2;
    return SendAll(pair.server, "go") && ReceiveExactly(pair.server, 2) == "on" ? 0 : 3;
  });
  pair.server.reset();
  REQUIRE(ReceiveExactly(pair.client, 2) == "go");
  REQUIRE(SendAll(pair.client, "on"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

volatile sig_atomic_t handled_asleep = 0;

// Jumps, but not out of itself: the sleep that it interrupts goes on.
void JumpWithin(int) {
  const int saved = errno;
  sigjmp_buf here;
  if (sigsetjmp(here, 1) == 0) siglongjmp(here, 1);
  errno = saved;
  handled_asleep = handled_asleep + 1;
}

TEST_CASE("fork: a handler that jumps within itself over a sleep from before the fork leaves that its data") {
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
  struct sigaction action {};
  action.sa_handler = JumpWithin;
  action.sa_flags = SA_RESTART;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  Pair pair = MakePair();
  handled_asleep = 0;
  Sleeper sleeper(pair.server, 100);
  REQUIRE(sleeper.FallsAsleep());
  Pipe over;
  const pid_t pid = Fork([&] {
    pair.client.reset();
    return SendAll(pair.server, "child") && over.Hear() ? 0 : 1;
  });
  REQUIRE(ReceiveExactly(pair.client, 5) == "child");
  sleeper.Interrupt();
  REQUIRE(Eventually([&] { return handled_asleep == 1; }));
  REQUIRE(sleeper.asleep());
  REQUIRE(SendAll(pair.client, "for the sleeper"));
  REQUIRE(sleeper.Got() == "for the sleeper");
  REQUIRE(SendAll(pair.server, "on"));
  REQUIRE(ReceiveExactly(pair.client, 2) == "on");
  REQUIRE(SendAll(pair.client, "and"));
  REQUIRE(ReceiveExactly(pair.server, 3) == "and");
  over.Tell();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: a program that a child execs writes while a thread of its parent sleeps in a receive") {
  Pair pair = MakePair();
  Sleeper sleeper(pair.server, 100);
  REQUIRE(sleeper.FallsAsleep());
  const pid_t pid = Fork([&] {
    dup2(pair.server, STDOUT_FILENO);
    pair.client.reset();
    execlp("echo", "echo", "word", nullptr);
    return 1;
  });
  REQUIRE(ReceiveExactly(pair.client, 5) == "word\n");
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(SendAll(pair.client, "more"));
  REQUIRE(sleeper.Got() == "more");
}

TEST_CASE("fork: the parent closes under its own sleeping receive, and the child goes on") {
  if (kUnderTsan) return Impossible(why::kClose);
  const bool used_before =
      GENERATE(false, true);  // then what the receive takes is not lost to the connection
  Pair pair = MakePair();
  Sleeper sleeper(pair.server, 1);
  REQUIRE(sleeper.FallsAsleep());
  Pipe close_seen, begin;
  const pid_t pid = Fork([&] {
    pair.client.reset();
    if (used_before && !SendAll(pair.server, "one")) return 1;
    if (used_before && (!close_seen.Hear() || !SendAll(pair.server, "two"))) return 2;
    // It would take the byte that is for the blocked call.
    if (!begin.Hear()) return 3;
    // What the blocked call does with the byte that wakes it is not defined.
    const std::string got = ReceiveToEnd(pair.server);
    if (got != "rest" && got != "xrest") return 4;
    return SendAll(pair.server, "answer") ? 0 : 5;
  });
  if (used_before) REQUIRE(ReceiveExactly(pair.client, 3) == "one");
  pair.server.reset();
  if (used_before) {
    close_seen.Tell();
    REQUIRE(ReceiveExactly(pair.client, 3) == "two");
  }
  REQUIRE(SendAll(pair.client, "x"));
  sleeper.Got();
  begin.Tell();
  REQUIRE(SendAll(pair.client, "rest"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(pair.client) == "answer");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// Whether the child goes on with the connection of a parent that ends while its thread sleeps in a receive.
bool GoesOnWithoutParent(bool killed) {
  Pair pair = MakePair();
  Pipe ended, begin;
  const pid_t parent = Fork([&]() -> int {
    pair.client.reset();
    if (!begin.Hear()) _exit(3);
    auto* const sleeper = new Sleeper(pair.server, 100);
    if (!sleeper->FallsAsleep()) _exit(1);
    const pid_t child = fork();
    if (child == 0) {
      ended.out.reset();
      char c;
      const bool good = read(ended.in, &c, 1) == 0 && SendAll(pair.server, "child") &&
                        ReceiveExactly(pair.server, 6) == "answer";
      _exit(good && SendAll(pair.server, "done") ? 0 : 1);
    }
    // The fork woke the thread.
    if (killed && sleeper->FallsAsleep()) raise(SIGKILL);
    _exit(child > 0 && !killed ? 0 : 2);
  });
  ended.out.reset();
  pair.server.reset();
  begin.Tell();
  const int status = Reap(parent);
  REQUIRE((killed ? WIFSIGNALED(status) : ExitedWith(status, 0)));
  if (ReceiveExactly(pair.client, 5) != "child") return false;
  REQUIRE(SendAll(pair.client, "answer"));
  REQUIRE(ReceiveToEnd(pair.client) == "done");
  return true;
}

TEST_CASE(
    "fork: a process that ends while its thread sleeps in a receive leaves the connection to its child") {
  SECTION("by itself") { REQUIRE(GoesOnWithoutParent(false)); }
  SECTION("killed") {
    // As long as it is shared the thread sleeps in short naps, and who is killed in the middle of a use takes
    // the connection along.
    int tries = 0;
    while (!GoesOnWithoutParent(true)) REQUIRE(++tries < 5);
  }
}

TEST_CASE("fork: a reader asleep in one thread while another forks goes on reading") {
  Pair pair = MakePair();
  auto reader = Async([&] { return ReceiveExactly(pair.server, 8); });
  REQUIRE(StillRunning(reader));
  const pid_t pid = Fork([&] {
    pair.server.reset();
    return SendAll(pair.client, "one ") ? 0 : 1;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(SendAll(pair.client, "two "));
  REQUIRE(Get(reader) == "one two ");
}

}  // namespace
}  // namespace posix_test
