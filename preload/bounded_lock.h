// Takes a lock at the end of the process. A thread that exits in a signal handler may have interrupted the
// lock's owner, which then never releases the lock.
#ifndef SDP_PRELOAD_BOUNDED_LOCK_H_
#define SDP_PRELOAD_BOUNDED_LOCK_H_

#include <chrono>
#include <mutex>

namespace sdp::preload {

// Locks `lock`, which was made with std::defer_lock. Returns false if that takes more than about 200 ms:
// owners hold such locks only for moments. `pause(duration)` sleeps; Pause (unbounded_poll.h) where a filter
// may be.
template <typename Mutex, typename Sleep>
bool LockBounded(std::unique_lock<Mutex>& lock, Sleep pause) {
  for (int attempts = 0; attempts < 1000; ++attempts) {
    if (lock.try_lock()) return true;
    pause(std::chrono::microseconds(200));
  }
  return false;
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_BOUNDED_LOCK_H_
