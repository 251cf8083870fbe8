// Taking a lock at the end of the process: whoever exits in a signal handler may have interrupted the lock's
// owner, for ever.
#ifndef SDP_PRELOAD_BOUNDED_LOCK_H_
#define SDP_PRELOAD_BOUNDED_LOCK_H_

#include <time.h>

#include <mutex>

namespace sdp::preload {

// Locks `lock`, made with std::defer_lock; false if that takes more than some 200 ms. Such locks are held for
// moments only.
template <typename Mutex>
bool LockBounded(std::unique_lock<Mutex>& lock) {
  for (int attempts = 0; attempts < 1000; ++attempts) {
    if (lock.try_lock()) return true;
    const timespec pause{.tv_sec = 0, .tv_nsec = 200'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_BOUNDED_LOCK_H_
