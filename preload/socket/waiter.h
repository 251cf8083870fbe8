// A thread that sleeps in poll because of some sockets, and the way for another thread to wake it.
//
// Readiness of an SDP socket is not that of its descriptor: any thread that makes progress may take the bytes
// another thread sleeps for. So a thread that sleeps registers a Waiter with each socket it waits for, and
// sleeps on the Waiter's eventfd or futex, too. A process with only one thread needs none of this.
#ifndef SDP_PRELOAD_SOCKET_WAITER_H_
#define SDP_PRELOAD_SOCKET_WAITER_H_

#include <signal.h>

#include <atomic>
#include <cstdint>

#include "core/base/types.h"
#include "verbs/softiwarp/bell.h"

namespace sdp::preload {

class Waiter {
 public:
  // Returns the calling thread's own, made when first asked for. Null if the process has a single thread, or
  // if no descriptor or memory is left: the thread then sleeps for short times only.
  static Waiter* ForThisThread();
  // Returns when a thread without a waiter has to look again: where there are other threads, their work does
  // not wake it.
  [[nodiscard]] static Time LookAgainWithout();
  // In a child of fork: the parent's descriptors are not for this process to sleep on.
  static void ForgetAfterFork();
  ~Waiter();

  [[nodiscard]] bool in_sleep() const { return sleeps_ != 0; }
  [[nodiscard]] int event_fd() const { return event_fd_; }
  // Returns the bell by which the peers of local links wake this thread; nullptr if no descriptor is left.
  iwarp::Bell* OpenBell() { return bell_.Open() ? &bell_ : nullptr; }
  // Called by the owner, when its sleep ended by the bell.
  void DrainBell();
  // Called by the owner around each of its sleeps. A handler that interrupts one may sleep, or fork: then the
  // child's thread has another waiter, and this one stays for the sleep that goes on.
  void BeginSleep() { ++sleeps_; }
  void EndSleep() { --sleeps_; }
  // Called by the owner around SleepAt(), with the lock of the socket that it waits for. Wake() ends such a
  // sleep, too, from BeginFutex() on.
  void BeginFutex() { futex_ = kUnwoken; }
  void EndFutex() { futex_ = kNoFutex; }
  // Sleeps until `bell` is rung, the waiter is woken, or a handler without SA_RESTART has run: EINTR. May be
  // cancelled. Returns 0 at once if the kernel, or a sandbox, has no sleep for two futexes.
  int SleepAt(const verbs::FutexBell& bell);
  // Called by any thread: the owner's sleep ends, or does not begin.
  void Wake();
  // Called by the owner, when its sleep ended by event_fd(): forgets that wake-up. The owner looks at its
  // sockets after this.
  void Drain();

 private:
  Waiter() = default;
  std::atomic<int> event_fd_{-1};
  iwarp::Bell bell_;
  // What a sleeper by futexes sleeps for beside the bell. The peer cannot reach it.
  enum : uint32_t { kNoFutex, kUnwoken, kWoken };
  std::atomic<uint32_t> futex_{kNoFutex};
  uint32_t sleeps_ = 0;  // the owner's alone
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_WAITER_H_
