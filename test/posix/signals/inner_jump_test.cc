// Handlers that jump within themselves, as a library's exceptions may be made, and then make calls: what they
// interrupt goes on.
#include <pthread.h>
#include <setjmp.h>

#include <atomic>
#include <thread>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

volatile int inner_fd = -1;
volatile sig_atomic_t inner_handled = 0;

void JumpAndCall(int) {
  const int saved = errno;
  sigjmp_buf here;
  if (sigsetjmp(here, 1) == 0) siglongjmp(here, 1);
  char c;
  const bool good =
      recv(inner_fd, &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN && send(inner_fd, "h", 1, 0) == 1;
  errno = saved;
  inner_handled = good ? 1 : -1;
}

void Install(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | flags;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
}

// A stack for handlers of the calling thread.
struct HandlersStack {
  HandlersStack() {
    const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = sizeof memory};
    sigaltstack(&stack, nullptr);
  }
  ~HandlersStack() {
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
  }
  alignas(16) char memory[128 * 1024];
};

TEST_CASE("handlers: one that jumps within itself and then makes calls, over a receive") {
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
  const bool forks = GENERATE(false, true);
  const bool apart = GENERATE(false, true);
  Install(JumpAndCall, apart ? SA_ONSTACK : 0);
  Pair pair = MakePair();
  inner_fd = pair.server;
  inner_handled = 0;
  std::atomic<pid_t> tid{0};
  std::atomic<pthread_t> thread{};
  auto sleeper = Async([&] {
    const HandlersStack stack;
    thread = pthread_self();
    tid = gettid();
    std::string got(100, 0);
    const ssize_t n = recv(pair.server, got.data(), got.size(), 0);
    got.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return n < 0 ? std::string(strerrorname_np(errno)) : got;
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  Pipe over;
  const pid_t pid = !forks ? -1 : Fork([&] {
    pair.client.reset();
    return SendAll(pair.server, "child") && over.Hear() ? 0 : 1;
  });
  if (forks) REQUIRE(ReceiveExactly(pair.client, 5) == "child");
  REQUIRE(pthread_kill(thread, SIGUSR1) == 0);
  REQUIRE(Eventually([&] { return inner_handled != 0; }));
  REQUIRE(inner_handled == 1);
  REQUIRE(ReceiveExactly(pair.client, 1) == "h");
  REQUIRE(StillRunning(sleeper));
  REQUIRE(SendAll(pair.client, "for the sleeper"));
  REQUIRE(Get(sleeper) == "for the sleeper");
  REQUIRE(SendAll(pair.server, "on"));
  REQUIRE(ReceiveExactly(pair.client, 2) == "on");
  REQUIRE(SendAll(pair.client, "and"));
  REQUIRE(ReceiveExactly(pair.server, 3) == "and");
  if (!forks) return;
  over.Tell();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

volatile pid_t forked = -1;
volatile int told = -1;

// In both processes what the handler has interrupted is begun again.
void ForkAndJump(int) {
  const int saved = errno;
  forked = fork();
  sigjmp_buf here;
  if (sigsetjmp(here, 1) == 0) siglongjmp(here, 1);
  errno = saved;
  if (forked > 0) (void)!write(told, "x", 1);
}

TEST_CASE("handlers: one that forks and jumps within itself, over a receive that goes on in both") {
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
  const bool apart = GENERATE(false, true);
  Install(ForkAndJump, apart ? SA_ONSTACK : 0);
  Pipe both, alone;
  told = both.out;
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    pair.client.reset();
    const HandlersStack stack;
    if (!alone.Hear()) return 4;
    const pid_t tid = gettid();
    const pthread_t thread = pthread_self();
    const int fd = pair.server;
    std::thread([=] {
      if (Eventually([=] { return IsAsleep(tid); })) pthread_kill(thread, SIGUSR1);
      // Of this the child's receive has to hear, and not from the link.
      if (Eventually([] { return forked > 0; })) (void)!send(fd, "p", 1, 0);
    }).detach();
    // Each of the two has one, be it which it may.
    char c = 0;
    if (recv(fd, &c, 1, 0) != 1) _exit(1);
    if (send(fd, &c, 1, 0) != 1) _exit(2);
    if (forked == 0) _exit(0);
    return ExitedWith(Reap(forked), 0) ? 0 : 3;
  });
  pair.server.reset();
  alone.Tell();
  REQUIRE(both.Hear());
  REQUIRE(ReceiveExactly(pair.client, 1) == "p");
  for (const char* const one : {"a", "b"}) {
    REQUIRE(SendAll(pair.client, one));
    REQUIRE(ReceiveExactly(pair.client, 1) == one);
  }
  REQUIRE(ExitedWith(Reap(pid), 0));
}

sigjmp_buf out_of_it;

// Out of it, behind a jump within.
void JumpTwice(int) {
  sigjmp_buf here;
  if (sigsetjmp(here, 1) == 0) siglongjmp(here, 1);
  siglongjmp(out_of_it, 1);
}

[[gnu::noinline]] bool JumpsOut(int fd) {
  if (sigsetjmp(out_of_it, 1) != 0) return true;
  const pthread_t thread = pthread_self();
  const pid_t tid = gettid();
  std::thread([=] {
    if (Eventually([=] { return IsAsleep(tid); })) pthread_kill(thread, SIGUSR1);
  }).detach();
  char c;
  (void)!recv(fd, &c, 1, 0);
  return false;
}

TEST_CASE("handlers: one that jumps within itself, and then out of a receive") {
  if (kUnderTsan) return Impossible(why::kHandlerJumps);
  const bool apart = GENERATE(false, true);
  Install(JumpTwice, apart ? SA_ONSTACK : 0);
  const HandlersStack stack;
  Pair pair = MakePair();
  for (int round = 0; round < 3; ++round) {
    REQUIRE(JumpsOut(pair.server));
    REQUIRE(SendAll(pair.client, "again"));
    REQUIRE(ReceiveExactly(pair.server, 5) == "again");
    REQUIRE(SendAll(pair.server, "back"));
    REQUIRE(ReceiveExactly(pair.client, 4) == "back");
  }
}

}  // namespace
}  // namespace posix_test
