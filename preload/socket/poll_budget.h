// How long a thread polls for an event before it sleeps. A value; guarded by the lock of its owner.
//
// A sleep costs an interrupt and two context switches; polling costs a core that others could use. So the
// time is bounded, to about the cost of a sleep, and follows the waits of the connection. Waits that end soon
// earn time, others lose it, and a connection whose waits are long does not poll at all. The class reads no
// clock and makes no system call, except to measure the cost of a sleep, once a process.
#ifndef SDP_PRELOAD_SOCKET_POLL_BUDGET_H_
#define SDP_PRELOAD_SOCKET_POLL_BUDGET_H_

#include <algorithm>
#include <optional>

#include "core/base/types.h"

namespace sdp::preload {

// Returns about what a sleep, its interrupt and the wake-up cost on this machine: the time of many system
// calls, estimated from a few. 50 to 500 us.
Duration SleepCost();

class PollBudget {
 public:
  // The number of waits that sleep at once after a crowded poll: at first, and at most. A thread that wants
  // the core for itself may have it for milliseconds, and each poll in vain costs that.
  static constexpr int kWaitsAfterCrowd = 8;
  static constexpr int kMostWaitsAfterCrowd = 4096;

  // `most` zero: never poll. Empty: SleepCost(), when the budget is first used.
  explicit PollBudget(std::optional<Duration> most) {
    if (most) SetMost(*most);
  }

  // Returns the budget for the next wait. Zero: sleep at once.
  [[nodiscard]] Duration Next() {
    if (!measured_) SetMost(SleepCost());
    return crowd_ == 0 ? budget_ : Duration::zero();
  }

  // Polling found the event.
  void NoteFound() {
    pause_ = std::max(pause_ - pause_ / 8, kWaitsAfterCrowd);
    Grow();
  }
  // The wait ended in a sleep, `lasted` after it began, which includes the sleep's own cost.
  void NoteSlept(Duration lasted);
  // The wait ended after `lasted` by an event of another connection that was polled, too.
  void NoteWaited(Duration lasted);
  // The wait ended by an event that polling would not have found, or without the event it was for.
  void NoteElsewhere();
  // While the calling thread polled, another thread wanted the core, and got it. Twice as many waits sleep at
  // once after the next one.
  void NoteCrowded() {
    crowd_ = pause_ + 1;
    pause_ = std::min(2 * pause_, kMostWaitsAfterCrowd);
  }

 private:
  void SetMost(Duration most) {
    most_ = budget_ = most;
    measured_ = true;
  }
  void Grow();
  void Shrink();

  bool measured_ = false;
  Duration most_{};
  Duration budget_{};
  int crowd_ = 0;  // waits that still sleep at once
  int pause_ = kWaitsAfterCrowd;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_POLL_BUDGET_H_
