// Handlers that a critical section has held off run behind it, each once, whatever one of them does.
#include "preload/critical.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

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
  for (size_t i = 0; i < before.size(); ++i) REQUIRE(sdp_entry_sigaction(kSignals[i], &action, &before[i]) == 0);
  for (int round = 0; round < 2; ++round) {
    ran.clear();
    MeetSignals();
    std::sort(ran.begin(), ran.end());
    CHECK(ran == std::vector<int>{SIGUSR1, SIGUSR2, SIGTERM});
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (const int number : kSignals) CHECK(sigismember(&mask, number) == 0);
  }
  for (size_t i = 0; i < before.size(); ++i) REQUIRE(sdp_entry_sigaction(kSignals[i], &before[i], nullptr) == 0);
}

}  // namespace
}  // namespace sdp::preload
