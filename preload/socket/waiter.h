// A thread that sleeps in poll because of some sockets, and how another thread wakes it.
//
// Readiness of an SDP socket is not the readiness of its descriptor: whoever makes progress may take the
// bytes another thread sleeps for. So a thread that sleeps registers a Waiter with each socket it waits for,
// and sleeps on the Waiter's eventfd too. A process that has only one thread needs none of it.
#ifndef SDP_PRELOAD_SOCKET_WAITER_H_
#define SDP_PRELOAD_SOCKET_WAITER_H_

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/base/types.h"

namespace sdp::preload {

class Waiter {
 public:
  // The calling thread's own, made when first asked for. Null if the process has a single thread or no
  // descriptor is left (then the thread sleeps for short times only).
  static Waiter* ForThisThread();
  // The same in a process with a single thread too.
  static Waiter* AlsoAlone();
  // When a thread without one looks again at the latest: where there are other threads, nothing that they do
  // wakes it.
  [[nodiscard]] static Time LookAgainWithout();
  // In a child of fork: the parent's descriptors are not this process's to sleep on.
  static void ForgetAfterFork();
  ~Waiter();

  [[nodiscard]] int event_fd() const { return event_fd_; }
  // A signalfd for these signals, kept from sleep to sleep; -1 if no descriptor is left.
  int SignalFd(const sigset_t& signals);
  // By any thread: the owner's sleep ends, or does not begin.
  void Wake();
  // By the owner, when its sleep ended by event_fd(): forget that wake-up. It looks at its sockets after
  // this.
  void Drain();

 private:
  Waiter() = default;
  std::atomic<int> event_fd_{-1};
  std::atomic<int> signal_fd_{-1};
  sigset_t watched_signals_{};
};

// The waiters of one socket. Guarded by the socket's lock.
class WaiterList {
 public:
  void Add(Waiter* waiter) {
    if (waiter != nullptr) waiters_.push_back(waiter);
  }
  void Remove(Waiter* waiter) {
    for (size_t i = 0; i < waiters_.size(); ++i) {
      if (waiters_[i] == waiter) {
        waiters_[i] = waiters_.back();
        waiters_.pop_back();
        return;
      }
    }
  }
  void WakeAll() {
    ++wakes_;
    for (Waiter* waiter : waiters_) waiter->Wake();
  }
  // Grows with each WakeAll: what a thread notices that gave the socket's lock back for a moment, and was no
  // waiter.
  [[nodiscard]] uint64_t wakes() const { return wakes_; }
  void Clear() { waiters_.clear(); }
  [[nodiscard]] bool empty() const { return waiters_.empty(); }

 private:
  std::vector<Waiter*> waiters_;
  uint64_t wakes_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_WAITER_H_
