// Handlers that a critical section has held off run behind it, each once, whatever one of them does.
#include "preload/critical.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <thread>
#include <vector>

#include "preload/guard.h"
#include "test/preload/prefixed_calls.h"

namespace sdp::preload {
namespace {

constexpr int kSignals[] = {SIGUSR1, SIGUSR2, SIGTERM};

enum class Way { kReturns, kJumpsWithin, kFirstJumps, kAllJump };
Way way;
sigjmp_buf outside;
std::vector<int> ran;

void Handler(int number) {
  ran.push_back(number);
  if (way == Way::kJumpsWithin) {
    sigjmp_buf inside;
    if (sigsetjmp(inside, 1) == 0) sdp_entry_longjmp(inside, 1);
  }
  if (way == Way::kAllJump || (way == Way::kFirstJumps && ran.size() == 1)) sdp_entry_longjmp(outside, 1);
}

sigset_t SignalsOfTheTest() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kSignals) sigaddset(&set, number);
  return set;
}

// All of them come at once, in the middle of a section.
void MeetSignalsInSection() {
  const sigset_t set = SignalsOfTheTest();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  Critical::Enter();
  for (const int number : kSignals) raise(number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  const bool held_off = ran.empty();
  Critical::Leave();
  CHECK(held_off);
}

// Apart from the case, whose values a jump might lose.
[[gnu::noinline]] void MeetSignals() {
  if (sigsetjmp(outside, 1) == 0) MeetSignalsInSection();
}

TEST_CASE("Handlers that wait for the end of a section run once each, though one jumps out", "[critical]") {
  way = GENERATE(Way::kReturns, Way::kJumpsWithin, Way::kFirstJumps, Way::kAllJump);
  CAPTURE(static_cast<int>(way));
  struct sigaction action {};
  action.sa_handler = Handler;
  std::vector<struct sigaction> before(std::size(kSignals));
  for (size_t i = 0; i < before.size(); ++i)
    REQUIRE(sdp_entry_sigaction(kSignals[i], &action, &before[i]) == 0);
  for (int round = 0; round < 2; ++round) {
    ran.clear();
    MeetSignals();
    std::sort(ran.begin(), ran.end());
    CHECK(ran == std::vector<int>{SIGUSR1, SIGUSR2, SIGTERM});
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (const int number : kSignals) CHECK(sigismember(&mask, number) == 0);
  }
  for (size_t i = 0; i < before.size(); ++i)
    REQUIRE(sdp_entry_sigaction(kSignals[i], &before[i], nullptr) == 0);
}

int stood_in_for = 0;
bool in_section = false;

struct sigaction ActionNow(int number) {
  struct sigaction action {};
  REQUIRE(sdp_entry_sigaction(number, nullptr, &action) == 0);
  return action;
}

TEST_CASE("What stands in for SIG_DFL runs behind a section and is seen by nobody", "[critical]") {
  struct sigaction before {};
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  action.sa_flags = SA_NODEFER;
  REQUIRE(sdp_entry_sigaction(SIGUSR1, &action, &before) == 0);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  Critical::StandIn(set, [](int number, const ucontext_t&) { stood_in_for = number; });
  CHECK(ActionNow(SIGUSR1).sa_handler == SIG_DFL);
  CHECK((ActionNow(SIGUSR1).sa_flags & (SA_NODEFER | SA_SIGINFO)) == SA_NODEFER);
  Critical::Enter();
  raise(SIGUSR1);
  in_section = stood_in_for != 0;
  Critical::Leave();
  CHECK_FALSE(in_section);
  CHECK(stood_in_for == SIGUSR1);
  // Another action, and the default again.
  way = Way::kReturns;
  ran.clear();
  stood_in_for = 0;
  action.sa_handler = Handler;
  REQUIRE(sdp_entry_sigaction(SIGUSR1, &action, nullptr) == 0);
  raise(SIGUSR1);
  CHECK(ran == std::vector<int>{SIGUSR1});
  REQUIRE(sdp_entry_signal(SIGUSR1, SIG_IGN) == Handler);
  raise(SIGUSR1);
  REQUIRE(sdp_entry_signal(SIGUSR1, SIG_DFL) == SIG_IGN);
  CHECK(stood_in_for == 0);
  raise(SIGUSR1);
  CHECK(stood_in_for == SIGUSR1);
  Critical::StandAside();
  struct sigaction kernels {};
  REQUIRE(real.sigaction(SIGUSR1, nullptr, &kernels) == 0);
  CHECK(kernels.sa_handler == SIG_DFL);
  REQUIRE(sdp_entry_sigaction(SIGUSR1, &before, nullptr) == 0);
}

// By what a child that runs `body` is ended; 0: it was not.
int EndOfChild(void (*body)()) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    Critical::ForgetAfterFork();
    body();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// SIGUSR1 comes where it has to wait, and then the other program.
void StandInAndDefer() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  signal(SIGUSR1, SIG_DFL);
  Critical::StandIn(set, [](int, const ucontext_t&) {});
  Critical::Enter();
  raise(SIGUSR1);
}

TEST_CASE("What waits for the end of a section that an exec is in is not lost with the program",
          "[critical]") {
  CHECK(EndOfChild([] {
          StandInAndDefer();
          Critical::StandAside();
          Critical::UnblockForExec();
        }) == SIGUSR1);
  // Beside another program the section goes on.
  CHECK(EndOfChild([] {
          StandInAndDefer();
          Critical::UnblockForExec();
        }) == 0);
}

}  // namespace
}  // namespace sdp::preload
