// Before a thread sleeps in poll, select or epoll_wait: looks at the completion queues of those sockets it
// waits for that are over a kernel RNIC, for a bounded time (StreamSocket::LookAtQueue, PollBudget). Nothing
// for all others.
#ifndef SDP_PRELOAD_READINESS_LOOK_H_
#define SDP_PRELOAD_READINESS_LOOK_H_

#include <array>

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class DeviceLook {
 public:
  // Who waits for more connections than these sleeps at once: looking at all of them would take as long as a
  // sleep.
  static constexpr size_t kMostSockets = 8;

  void Clear() { count_ = 0; }
  // A socket of Readiness::device, which the caller keeps alive until Clear(); `budget` is its
  // Readiness::look.
  void Add(StreamSocket* socket, Duration budget);
  [[nodiscard]] bool any() const { return count_ != 0; }
  // As long as the most patient of them wants, but not beyond `deadline`, and not while another thread wants
  // the core; not at all if `other_ready`: something else that is waited for is ready, and would wait for the
  // look. True: something has come, readiness may be another. False: what comes from here on ends a sleep.
  bool Run(Time deadline, bool other_ready);

 private:
  bool EndAll(StreamSocket::LookResult result);

  std::array<StreamSocket*, kMostSockets> sockets_;
  size_t count_ = 0;  // of all that were added
  Duration budget_{};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_LOOK_H_
