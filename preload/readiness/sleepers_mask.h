// The signal mask of a sleep, during a look that comes before it.
#ifndef SDP_PRELOAD_READINESS_SLEEPERS_MASK_H_
#define SDP_PRELOAD_READINESS_SLEEPERS_MASK_H_

#include <signal.h>

namespace sdp::preload {

// Sets the sleep's signal mask, and restores the thread's own at the end.
class SleepersMask {
 public:
  // `mask`: null if the sleep has the thread's own.
  explicit SleepersMask(const sigset_t* mask) : given_(mask != nullptr) {
    if (given_) pthread_sigmask(SIG_SETMASK, mask, &own_);
  }
  ~SleepersMask() {
    if (given_) pthread_sigmask(SIG_SETMASK, &own_, nullptr);
  }
  SleepersMask(const SleepersMask&) = delete;
  SleepersMask& operator=(const SleepersMask&) = delete;

 private:
  const bool given_;
  sigset_t own_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_SLEEPERS_MASK_H_
