// What this process may still ask of the kernel. A process that has set a seccomp filter on itself
// (confinement.h) may make only some system calls, so the library asks here before it makes one. This part
// owns the flags alone: confinement.cc reads filters and sets the flags, link_calls.cc has the detours. Any
// thread may ask, without a lock.
#ifndef SDP_PRELOAD_ALLOWED_CALLS_H_
#define SDP_PRELOAD_ALLOWED_CALLS_H_

#include <atomic>
#include <cstdint>

namespace sdp::preload {

// The calls that a filter may forbid. An unconfined process may make all of them.
enum class Call : uint8_t {
  kRead,
  kReadv,
  kRecv,
  kRecvmsg,
  kWrite,
  kWritev,
  kSend,
  kSendmsg,
  kPoll,
  kPpoll,
  kSelect,
  kSleep,
  kShutdown,
  kGetpid,
  kSignalMask,
  kGettid,
  kTgkill,
  kMmap,
  kMunmap,
  kConnect,
  kCount
};

class AllowedCalls {
 public:
  // Returns whether a thread of this process has set a filter that forbids something the library may need.
  static bool confined() { return confined_.load(std::memory_order_relaxed); }
  static bool Has(Call call) {
    return (forbidden_.load(std::memory_order_relaxed) >> static_cast<unsigned>(call) & 1) == 0;
  }
  // A filter has been set. `forbidden` has a bit for each Call. Filters add up and are never taken back.
  static void Forbid(uint32_t forbidden) {
    forbidden_.fetch_or(forbidden, std::memory_order_relaxed);
    confined_.store(true, std::memory_order_relaxed);
  }

 private:
  static inline constinit std::atomic<bool> confined_{false};
  static inline constinit std::atomic<uint32_t> forbidden_{0};
};

inline bool Confined() { return AllowedCalls::confined(); }
inline bool MayCall(Call call) { return AllowedCalls::Has(call); }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_ALLOWED_CALLS_H_
