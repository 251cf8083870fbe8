// Before a thread sleeps in poll, select or epoll_wait: looks at the completion queues of those sockets it
// waits for that are over a kernel RNIC, for a bounded time (StreamSocket::LookAtQueue, PollBudget). Nothing
// for all others.
#ifndef SDP_PRELOAD_READINESS_LOOK_H_
#define SDP_PRELOAD_READINESS_LOOK_H_

#include <signal.h>

#include <array>
#include <atomic>

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

// Of several threads that wait for the same, one looks, the others sleep. A thread that a handler's jump
// takes out of its look keeps the others from it until its time is over.
class LookTurn {
 public:
  // True: it is the caller's, until it gives it back or `until`.
  [[nodiscard]] bool Take(Time now, Time until) {
    Time taken = until_.load(std::memory_order_relaxed);
    return now >= taken && until_.compare_exchange_strong(taken, until, std::memory_order_relaxed);
  }
  void GiveBack(Time until) { until_.compare_exchange_strong(until, Time{}, std::memory_order_relaxed); }

 private:
  std::atomic<Time> until_{Time{}};
};

class DeviceLook {
 public:
  // Who waits for more connections than these sleeps at once: looking at all of them would take as long as a
  // sleep.
  static constexpr size_t kMostSockets = 8;

  void Clear() { count_ = 0; }
  // A socket of Readiness::device, which the caller keeps alive until Clear(); `budget` is its
  // Readiness::look.
  void Add(StreamSocket* socket, Duration budget, const StreamSocket::Wanted& wanted);
  [[nodiscard]] bool any() const { return count_ != 0; }
  // As long as the most patient of them wants, but not beyond `deadline`, and not while another thread wants
  // the core; not at all if `other_ready`: something else that is waited for is ready, and would wait for the
  // look. What comes and is not waited for (credit, say) does not end it. `mask`, if any, is the sleep's: it
  // says which handlers run meanwhile.
  enum class Outcome : uint8_t {
    kSleep,        // what comes from here on ends a sleep
    kCame,         // something has come, readiness may be another
    kInterrupted,  // a signal handler ran; who finds nothing ready returns with EINTR
  };
  Outcome Run(Time deadline, bool other_ready, const sigset_t* mask);

 private:
  bool EndAll(StreamSocket::LookResult result);

  struct Looked {
    StreamSocket* socket;
    StreamSocket::Wanted wanted;
    bool came;  // something that is not waited for
  };
  std::array<Looked, kMostSockets> sockets_;
  size_t count_ = 0;  // of all that were added
  Duration budget_{};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_LOOK_H_
