#include "preload/socket/poll_budget.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

// A sleep of a thread whose core idles costs some 50 us on a server, where a system call takes a quarter of
// one. On machines that emulate another both are slower, about alike.
constexpr int kCallsPerSleep = 200;
constexpr int kCallsTimed = 8;
constexpr Duration kLeastSleepCost = std::chrono::microseconds(50);
constexpr Duration kMostSleepCost = std::chrono::microseconds(500);

// The fastest of some: the others were interrupted.
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

// A budget of less than this part of the most is none, and the first that is earned.
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

// A short one says nothing of this connection.
void PollBudget::NoteWaited(Duration lasted) {
  if (crowd_ > 0) --crowd_;
  if (lasted > 2 * most_) Shrink();
}

// However soon: what has come had to wait for the look, which was in vain.
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
