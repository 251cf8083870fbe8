// Monotonic time, and deadlines for system calls. Has no state and no lock.
#ifndef SDP_PRELOAD_SOCKET_CLOCK_H_
#define SDP_PRELOAD_SOCKET_CLOCK_H_

#include <time.h>

#include "core/base/types.h"

namespace sdp::preload {

// Returns the time for engines and connectors. The vDSO answers: no system call.
inline Time Now() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return Time(std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec));
}

// Returns that time at the last tick, at most some milliseconds ago, for a fraction of the cost.
inline Time CoarseNow() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
  return Time(std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec));
}

// Returns the time until `deadline`, for ppoll and similar calls: null for never, zero if it has passed.
inline const timespec* Remaining(Time deadline, timespec* storage) {
  if (deadline == kNever) return nullptr;
  const Duration left = deadline - Now();
  const auto ns = left.count() > 0 ? left.count() : 0;
  storage->tv_sec = ns / 1'000'000'000;
  storage->tv_nsec = ns % 1'000'000'000;
  return storage;
}

inline Time DeadlineAfter(const timespec* timeout) {
  if (timeout == nullptr || timeout->tv_sec > 4'000'000'000) return kNever;
  return Now() + std::chrono::seconds(timeout->tv_sec) + std::chrono::nanoseconds(timeout->tv_nsec);
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CLOCK_H_
