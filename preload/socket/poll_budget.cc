#include "preload/socket/poll_budget.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

// On a server, a sleep of a thread whose core idles costs some 50 us, and a system call a quarter of one.
// Machines that emulate another are slower at both, by about the same factor.
constexpr int kCallsPerSleep = 200;
constexpr int kCallsTimed = 8;
constexpr Duration kLeastSleepCost = std::chrono::microseconds(50);
constexpr Duration kMostSleepCost = std::chrono::microseconds(500);

// Returns the time of the fastest of several calls: the others were interrupted.
Duration TimeSystemCall() {
  Duration fastest = kMostSleepCost;
  for (int i = 0; i < kCallsTimed; ++i) {
    const Time before = Now();
    rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    fastest = std::min<Duration>(fastest, Now() - before);
  }
  return fastest;
}

// A budget below this part of the most counts as none. It is also the first budget that is earned.
constexpr int kSmallestPart = 8;

}  // namespace

Duration SleepCost() {
  static constinit std::atomic<int64_t> known{0};
  int64_t cost = known.load(std::memory_order_relaxed);
  if (cost == 0) {
    cost = std::clamp<Duration>(kCallsPerSleep * TimeSystemCall(), kLeastSleepCost, kMostSleepCost).count();
    known.store(cost, std::memory_order_relaxed);
  }
  return Duration(cost);
}

void PollBudget::NoteSlept(Duration lasted) {
  NoteWaited(lasted);
  if (lasted <= 2 * most_) Grow();
}

// A short wait says nothing about this connection.
void PollBudget::NoteWaited(Duration lasted) {
  if (crowd_ > 0) --crowd_;
  if (lasted > 2 * most_) Shrink();
}

// Even after a short wait: the event had to wait for a poll that was in vain.
void PollBudget::NoteElsewhere() {
  if (crowd_ > 0) --crowd_;
  Shrink();
}

void PollBudget::Shrink() {
  budget_ /= 2;
  if (budget_ < most_ / kSmallestPart) budget_ = Duration::zero();
}

void PollBudget::Grow() { budget_ = std::clamp(2 * budget_, most_ / kSmallestPart, most_); }

}  // namespace sdp::preload
