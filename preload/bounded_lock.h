// Takes a lock at the end of the process. A thread that exits in a signal handler may have interrupted the
// lock's owner, which then never releases the lock.
#ifndef SDP_PRELOAD_BOUNDED_LOCK_H_
#define SDP_PRELOAD_BOUNDED_LOCK_H_

#include <time.h>

#include <mutex>

namespace sdp::preload {

// Locks `lock`, which was made with std::defer_lock. Returns false if that takes more than about 200 ms:
// owners hold such locks only for moments.
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
