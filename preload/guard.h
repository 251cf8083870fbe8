// Per-thread marks: the thread is inside a foreign library's code on this library's behalf, it must not be
// cancelled, or it has jumped. Each thread has its own marks and no lock is needed; Jumps also counts all
// threads.
#ifndef SDP_PRELOAD_GUARD_H_
#define SDP_PRELOAD_GUARD_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <utility>

namespace sdp::preload {

// Marks a call into a foreign library (librdmacm, libibverbs), whose own socket(), read() and close() resolve
// to our entry points. The library's own code needs no mark: it calls `real.` everywhere.
//
// The mark protects only descriptors that the library must not manage: socket() and accept() register
// nothing, and hidden descriptors may be closed and overwritten. Calls on an SDP socket do not become raw
// calls. A descriptor that the table does not know passes through anyway. A signal handler that interrupts
// the foreign code may send on an SDP socket, and those bytes must go through SDP: raw bytes would corrupt
// the stream that carries it.
class ForeignCall {
 public:
  ForeignCall() { ++depth_; }
  ~ForeignCall() { --depth_; }
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;
  static bool Active() { return depth_ != 0; }

 private:
  // Initial-exec: a thread's first access neither allocates nor calls the dynamic linker.
  static inline thread_local int depth_ __attribute__((tls_model("initial-exec"))) = 0;
};

// Holds off thread cancellation. A thread that ended in the middle of a call would leave it half done.
// Besides, glibc declares socket(), dup2(), sendfile() and more as noexcept because they are no cancellation
// points; our versions may call functions that are.
class NoCancellation {
 public:
  NoCancellation() : NoCancellation(Sleeps::kHeldOff) {}
  ~NoCancellation() {
    sleeps_ = outer_sleeps_;
    if (depth_ == 0) return;  // an error signal's handler has jumped within itself (critical.h)
    depth_ = depth_ - 1;
    if (depth_ == 0) pthread_setcancelstate(callers_, nullptr);
  }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

  // The thread jumps, usually out of a handler that interrupted it here.
  static void NoteJump() {
    if (depth_ == 0) return;
    depth_ = 0;
    pthread_setcancelstate(callers_, nullptr);
  }

 protected:
  enum class Sleeps : bool { kHeldOff, kMayBeCancelled };
  explicit NoCancellation(Sleeps sleeps) : outer_sleeps_(sleeps_) {
    sleeps_ = depth_ == 0 ? sleeps : Sleeps::kHeldOff;
    if (depth_ == 0) {
      int before = PTHREAD_CANCEL_ENABLE;
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
      callers_ = before;
    }
    depth_ = depth_ + 1;
  }

 private:
  friend class SleepMayBeCancelled;
  friend class HandlerInTheMiddle;
  static inline thread_local int depth_ __attribute__((tls_model("initial-exec"))) = 0;
  static inline thread_local int callers_ __attribute__((tls_model("initial-exec"))) =
      PTHREAD_CANCEL_ENABLE;  // valid while depth_ is not 0
  static inline thread_local Sleeps sleeps_ __attribute__((tls_model("initial-exec"))) = Sleeps::kHeldOff;
  const Sleeps outer_sleeps_;
};

// NoCancellation for a call that is a cancellation point: it may be cancelled in its sleeps only.
class CancelledInSleepsOnly : public NoCancellation {
 public:
  CancelledInSleepsOnly() : NoCancellation(Sleeps::kMayBeCancelled) {}
};

// Restores the caller's cancellation state during a sleep of a CancelledInSleepsOnly call. Does nothing in
// any other sleep.
class SleepMayBeCancelled {
 public:
  SleepMayBeCancelled()
      : depth_(NoCancellation::sleeps_ == NoCancellation::Sleeps::kMayBeCancelled ? NoCancellation::depth_
                                                                                  : 0),
        callers_(NoCancellation::callers_) {
    if (depth_ == 0) return;
    NoCancellation::depth_ = 0;
    pthread_setcancelstate(callers_, nullptr);
  }
  ~SleepMayBeCancelled() {
    if (depth_ == 0) return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    NoCancellation::callers_ = callers_;
    NoCancellation::sleeps_ = NoCancellation::Sleeps::kMayBeCancelled;
    NoCancellation::depth_ = depth_;
  }
  SleepMayBeCancelled(const SleepMayBeCancelled&) = delete;
  SleepMayBeCancelled& operator=(const SleepMayBeCancelled&) = delete;

 private:
  const int depth_;
  const int callers_;
};

// Saves and restores this thread's state around a signal handler, which may jump within itself.
class HandlerInTheMiddle {
 public:
  HandlerInTheMiddle() = default;
  ~HandlerInTheMiddle() {
    if (NoCancellation::depth_ == depth_) return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    NoCancellation::callers_ = callers_;
    NoCancellation::sleeps_ = sleeps_;
    NoCancellation::depth_ = depth_;
  }
  HandlerInTheMiddle(const HandlerInTheMiddle&) = delete;
  HandlerInTheMiddle& operator=(const HandlerInTheMiddle&) = delete;

 private:
  const int depth_ = NoCancellation::depth_;
  const int callers_ = NoCancellation::callers_;
  const NoCancellation::Sleeps sleeps_ = NoCancellation::sleeps_;
};

// Counts the calling thread's jumps, by longjmp and its like (entry_points_jump.cc). A jump within a handler
// that leaves none of the calls in which the thread sleeps is not counted.
class Jumps {
 public:
  static uint32_t Count() { return count_; }
  // The count for all threads.
  static uint32_t Total() { return total_.load(std::memory_order_relaxed); }
  static void Note(bool leaves_sleep) {
    if (leaves_sleep) {
      count_ = count_ + 1;
      total_.fetch_add(1, std::memory_order_relaxed);
      innermost_ = 0;
    }
    NoCancellation::NoteJump();
  }
  // Returns the place of the mark of the innermost call in which the thread sleeps (socket/call_mark.h); 0 if
  // none is known.
  static uintptr_t innermost() { return innermost_; }
  static uintptr_t SetInnermost(uintptr_t mark) { return std::exchange(innermost_, mark); }

 private:
  static inline constinit std::atomic<uint32_t> total_{0};
  static inline thread_local uint32_t count_ __attribute__((tls_model("initial-exec"))) = 0;
  static inline thread_local uintptr_t innermost_ __attribute__((tls_model("initial-exec"))) = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_GUARD_H_
