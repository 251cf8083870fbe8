// Marks a thread that is inside somebody else's code on the library's behalf, or that must not be cancelled.
#ifndef SDP_PRELOAD_GUARD_H_
#define SDP_PRELOAD_GUARD_H_

#include <pthread.h>

namespace sdp::preload {

// Around a call into a foreign library (librdmacm, libibverbs), whose own socket(), read() or close() resolve
// to our entry points. The library's own code needs no mark: it calls `real.` everywhere.
//
// The mark changes only what would touch descriptors the library must not manage: socket() and accept()
// register nothing, and hidden descriptors may be closed and overwritten. It does not turn calls on an SDP
// socket into raw ones: a descriptor the table does not know passes through anyway, and a signal handler that
// interrupts the foreign code may send on an SDP socket and must reach SDP, never write bytes into the middle
// of the stream that carries it.
class ForeignCall {
 public:
  ForeignCall() { ++depth_; }
  ~ForeignCall() { --depth_; }
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;
  static bool Active() { return depth_ != 0; }

 private:
  // Initial-exec: no allocation at the first access in a thread, and no call into the dynamic linker.
  static inline thread_local int depth_ __attribute__((tls_model("initial-exec"))) = 0;
};

// Holds off thread cancellation. glibc declares socket(), dup2(), sendfile() and more as noexcept because
// they are no cancellation points; our versions of them may call functions that are one, and the unwinding of
// a cancelled thread must not meet a noexcept.
class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &previous_); }
  ~NoCancellation() { pthread_setcancelstate(previous_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  friend class SleepMayBeCancelled;
  int previous_ = PTHREAD_CANCEL_ENABLE;
};

// Within such a call, where it sleeps: as the caller has it.
class SleepMayBeCancelled {
 public:
  explicit SleepMayBeCancelled(const NoCancellation& call) { pthread_setcancelstate(call.previous_, nullptr); }
  ~SleepMayBeCancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr); }
  SleepMayBeCancelled(const SleepMayBeCancelled&) = delete;
  SleepMayBeCancelled& operator=(const SleepMayBeCancelled&) = delete;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_GUARD_H_
