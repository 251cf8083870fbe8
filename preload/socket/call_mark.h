// Detects that the program has jumped out of a call: siglongjmp from a signal handler, the classic time-out.
// No code of such a call runs any more to give back what it held. So a call that leaves something behind
// while it sleeps marks its frame. The thread's next call on the socket checks for a jump: one by a function
// that the library intercepts, or any other after which the frame is gone.
#ifndef SDP_PRELOAD_SOCKET_CALL_MARK_H_
#define SDP_PRELOAD_SOCKET_CALL_MARK_H_

#include <pthread.h>
#include <signal.h>

#include <cstdint>

#include "preload/guard.h"

namespace sdp::preload {

// Lies in the frame of a call that sleeps.
class CallMark {
 public:
  CallMark() : value_(Expected()), outer_(Jumps::SetInnermost(reinterpret_cast<uintptr_t>(this))) {}
  ~CallMark() {
    value_ = 0;
    Jumps::SetInnermost(outer_);
  }
  CallMark(const CallMark&) = delete;
  CallMark& operator=(const CallMark&) = delete;

  // Reads the place of the mark, whatever is there now.
  [[nodiscard]] __attribute__((no_sanitize("address"))) bool intact() const { return value_ == Expected(); }

 private:
  [[nodiscard]] uint64_t Expected() const { return 0x5d9a'11ca'5a11'ed00 ^ reinterpret_cast<uint64_t>(this); }
  volatile uint64_t value_;
  const uintptr_t outer_;
};

// The thread that sleeps in a marked call. Guarded by the socket's lock.
class Sleeper {
 public:
  void Set(const CallMark* mark) {
    thread_ = pthread_self();
    mark_ = mark;
    jumps_ = Jumps::Count();
  }
  void Clear() { mark_ = nullptr; }
  [[nodiscard]] bool Is(pthread_t thread) const {
    return mark_ != nullptr && pthread_equal(thread_, thread) != 0;
  }
  // Returns true if the sleeper is the calling thread, which is then in a signal handler or has jumped.
  [[nodiscard]] bool IsCaller() const { return Is(pthread_self()); }
  // Returns true if the sleeper is the calling thread and its frame is gone. `frame`: of the asking call, the
  // library's outermost, so that a call from the same place is seen to lie over the mark and not beside it. A
  // handler's calls lie below the frame of the call that it interrupted, or on another stack.
  [[nodiscard]] bool JumpedOver(const void* frame) const {
    if (!IsCaller()) return false;
    stack_t stack{};
    if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0) return false;
    return jumps_ != Jumps::Count() ||
           reinterpret_cast<uintptr_t>(frame) >= reinterpret_cast<uintptr_t>(mark_) || !mark_->intact();
  }

 private:
  pthread_t thread_{};
  const CallMark* mark_ = nullptr;
  uint32_t jumps_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CALL_MARK_H_
