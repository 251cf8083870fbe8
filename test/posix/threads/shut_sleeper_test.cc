// A thread sleeps in a receive, and another one shuts the socket down, or takes it into another program.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

TEST_CASE("shut sleeper: SHUT_RD ends a blocked receive") {
  const bool blocks_signals = GENERATE(false, true);
  Pair pair = MakePair();
  std::atomic<pid_t> tid{0};
  auto blocked = Async([&] {
    sigset_t all;
    sigfillset(&all);
    if (blocks_signals) pthread_sigmask(SIG_BLOCK, &all, nullptr);
    tid = gettid();
    char c;
    return recv(pair.client, &c, 1, 0);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(shutdown(pair.client, SHUT_RD) == 0);
  const bool ended = !StillRunning(blocked, 3000);
  // A reader left asleep would keep the whole case from its end.
  if (!ended) SendAll(pair.server, "x");
  REQUIRE(ended);
  REQUIRE(Get(blocked) == 0);
  REQUIRE((PollOne(pair.client, POLLIN | POLLRDHUP, 0) & (POLLIN | POLLRDHUP)) == (POLLIN | POLLRDHUP));
  REQUIRE(SendAll(pair.client, "still sends"));
  REQUIRE(ReceiveExactly(pair.server, 11) == "still sends");
}

TEST_CASE("shut sleeper: SHUT_RD ends a blocked receive while the peer waits too") {
  const bool by_poll = GENERATE(true, false);
  Pair pair = MakePair();
  auto blocked = Async([&] {
    char c;
    return recv(pair.client, &c, 1, 0);
  });
  auto peer = Async([&] {
    if (by_poll) WaitFor(pair.server, POLLIN);
    char room[32];
    return std::string(room,
                       static_cast<size_t>(std::max<ssize_t>(recv(pair.server, room, sizeof room, 0), 0)));
  });
  REQUIRE(StillRunning(blocked));
  REQUIRE(shutdown(pair.client, SHUT_RD) == 0);
  REQUIRE(Get(blocked) == 0);
  REQUIRE(StillRunning(peer));
  REQUIRE(SendAll(pair.client, "still sends"));
  REQUIRE(Get(peer) == "still sends");
}

TEST_CASE("shut sleeper: of a MSG_WAITALL receive what came is told") {
  Pair pair = MakePair();
  const int how = GENERATE(static_cast<int>(SHUT_RD), static_cast<int>(SHUT_RDWR));
  std::atomic<pid_t> tid{0};
  char room[8];
  auto blocked = Async([&] {
    tid = gettid();
    return recv(pair.client, room, sizeof room, MSG_WAITALL);
  });
  REQUIRE(SendAll(pair.server, "abc"));
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid) && PollOne(pair.client, POLLIN, 0) == 0; }));
  REQUIRE(shutdown(pair.client, how) == 0);
  const bool ended = !StillRunning(blocked, 3000);
  if (!ended) SendAll(pair.server, "defgh");
  REQUIRE(ended);
  REQUIRE(Get(blocked) == 3);
  REQUIRE(std::string(room, 3) == "abc");
}

// Whatever the sleeper is at just then.
TEST_CASE("shut sleeper: at any moment, again and again") {
  const bool sends = GENERATE(false, true);
  for (int i = 0; i < 60; ++i) {
    Pair pair = MakePair();
    std::atomic<bool> begun{false};
    auto reader = Async([&] {
      begun = true;
      char c;
      ssize_t bytes = 0;
      for (ssize_t got; (got = recv(pair.client, &c, 1, 0)) != 0; bytes += got) {
        if (got < 0) return ssize_t{-errno};
      }
      return bytes;
    });
    while (!begun) sched_yield();
    for (const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(4 * i);
         std::chrono::steady_clock::now() < until;) {
    }
    if (sends) REQUIRE(SendAll(pair.server, "0123456789"));
    REQUIRE(shutdown(pair.client, SHUT_RD) == 0);
    const bool ended = !StillRunning(reader, 3000);
    if (!ended) pair.server.reset();
    REQUIRE(ended);
    const ssize_t bytes = Get(reader);
    REQUIRE((sends ? bytes >= 0 && bytes <= 10 : bytes == 0));
  }
}

TEST_CASE("shut sleeper: no signal of the program's is used up, and none is seen to be handled") {
  Pair pair = MakePair();
  static std::atomic<int> handled;
  handled = 0;
  struct sigaction counts {};
  counts.sa_handler = [](int) { ++handled; };
  REQUIRE(sigaction(SIGRTMAX, &counts, nullptr) == 0);
  std::atomic<pid_t> tid{0};
  auto blocked = Async([&] {
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGRTMAX - 1);
    sigaddset(&some, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &some, nullptr);
    tid = gettid();
    char c;
    const ssize_t got = recv(pair.client, &c, 1, 0);
    sigset_t pending;
    sigpending(&pending);
    return got == 0 && sigisemptyset(&pending) == 1;
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(shutdown(pair.client, SHUT_RD) == 0);
  const bool ended = !StillRunning(blocked, 3000);
  if (!ended) pair.server.reset();
  REQUIRE(ended);
  REQUIRE(Get(blocked));
  REQUIRE(handled == 0);
  for (int number = SIGRTMIN; number < SIGRTMAX; ++number) {
    struct sigaction now {};
    REQUIRE(sigaction(number, nullptr, &now) == 0);
    REQUIRE(now.sa_handler == SIG_DFL);
  }
  REQUIRE(signal(SIGRTMAX, SIG_DFL) != SIG_ERR);
}

thread_local sigjmp_buf out_of_receive;

TEST_CASE("shut sleeper: a thread that jumped out of its receive, and has ended, is not woken") {
  if (kUnderTsan) return Impossible(why::kHandlerJumps);
  Pair pair = MakePair();
  struct sigaction jumps {};
  jumps.sa_handler = [](int) { siglongjmp(out_of_receive, 1); };
  REQUIRE(sigaction(SIGUSR1, &jumps, nullptr) == 0);
  std::atomic<pid_t> tid{0};
  std::thread thread([&] {
    char c;
    if (sigsetjmp(out_of_receive, 1) == 0) {
      tid = gettid();
      (void)!recv(pair.client, &c, 1, 0);
    }
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(pthread_kill(thread.native_handle(), SIGUSR1) == 0);
  thread.join();
  REQUIRE(SendAll(pair.server, "x"));
  REQUIRE(ReceiveExactly(pair.client, 1) == "x");
  REQUIRE(shutdown(pair.client, SHUT_RD) == 0);  // wakes all that sleep
  REQUIRE(SendAll(pair.client, "still sends"));
  REQUIRE(ReceiveExactly(pair.server, 11) == "still sends");
}

TEST_CASE("shut sleeper: a program that is execed gets the connection at once") {
  Pair pair = MakePair();
  const int number = pair.server;
  const pid_t pid = Fork([&] {
    std::atomic<pid_t> tid{0};
    auto blocked = Async([&] {
      tid = gettid();
      char c;
      return recv(number, &c, 1, 0);
    });
    while (tid == 0 || !IsAsleep(tid)) sched_yield();
    const std::string command =
        "read line <&" + std::to_string(number) + "; echo \"got $line\" >&" + std::to_string(number);
    execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
    return 1;
  });
  pair.server.reset();
  // As late as the program is there.
  char path[48], name[16] = "";
  snprintf(path, sizeof path, "/proc/%d/comm", pid);
  Stopwatch watch;
  REQUIRE(Eventually([&] {
    const Fd comm(open(path, O_RDONLY));
    return read(comm, name, 5) == 5 && std::string(name, 5) == "bash\n";
  }));
  REQUIRE(watch.ms() < 1500);
  REQUIRE(SendAll(pair.client, "something\n"));
  REQUIRE(ReceiveExactly(pair.client, 14) == "got something\n");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
