// How long a thread looks for what it waits for before it sleeps.
//
// A sleep costs an interrupt and two switches of context; a look costs the core to whoever could use it. So
// the time is bounded, about as long as a sleep costs, and it follows the waits of the connection: those that
// end soon earn time, those that do not lose it, and a connection whose waits are long does not look at all.
// Without clock or system call, but for the measurement of what a sleep costs here, once a process.
#ifndef SDP_PRELOAD_SOCKET_POLL_BUDGET_H_
#define SDP_PRELOAD_SOCKET_POLL_BUDGET_H_

#include <optional>

#include "core/base/types.h"

namespace sdp::preload {

// About what a sleep, its interrupt and the wake-up cost on this machine: as much as many system calls, of
// which some are timed once. 50 to 500 us.
Duration SleepCost();

class PollBudget {
 public:
  // After a crowded look so many waits sleep at once.
  static constexpr int kWaitsAfterCrowd = 8;

  // `most` zero: never look; nothing: SleepCost(), when it is first asked.
  explicit PollBudget(std::optional<Duration> most) {
    if (most) SetMost(*most);
  }

  // For the next wait. Zero: sleep at once.
  [[nodiscard]] Duration Next() {
    if (!measured_) SetMost(SleepCost());
    return crowd_ == 0 ? budget_ : Duration::zero();
  }

  // A look found what the wait was for.
  void NoteFound() { Grow(); }
  // The wait ended in a sleep, so long after it began. The sleep's own cost is in it.
  void NoteSlept(Duration lasted);
  // It ended so late by what came for another connection that was looked at, too.
  void NoteWaited(Duration lasted);
  // It ended by something that no look would have found, or by nothing that it was for.
  void NoteElsewhere();
  // While looking, another thread wanted the core, and had it.
  void NoteCrowded() { crowd_ = kWaitsAfterCrowd + 1; }

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
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_POLL_BUDGET_H_
