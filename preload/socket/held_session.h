// The session of a StreamSocket, as this process has it. It is reached through `->` and `*` by a caller that
// holds the lock while this process has the connection's newest state. While another process has that
// (Share::foreign), what is known here is old: last_known() gives it.
#ifndef SDP_PRELOAD_SOCKET_HELD_SESSION_H_
#define SDP_PRELOAD_SOCKET_HELD_SESSION_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "core/base/check.h"
#include "preload/socket/session.h"
#include "preload/socket/share.h"

namespace sdp::preload {

class HeldSession {
 public:
  // `share`: the same socket's.
  explicit HeldSession(const Share& share) : share_(share) {}
  HeldSession(const HeldSession&) = delete;
  HeldSession& operator=(std::unique_ptr<Session> session) {
    session_ = std::move(session);
    return *this;
  }
  bool operator==(std::nullptr_t) const { return session_ == nullptr; }

  Session& operator*() const {
    SDP_DCHECK(session_ != nullptr && !share_.foreign());
    return *session_;
  }
  Session* operator->() const { return &**this; }
  // Returns null if there is none.
  [[nodiscard]] Session* last_known() const { return session_.get(); }

  void reset() { session_.reset(); }
  // The session stays in memory for ever.
  void Abandon() { (void)session_.release(); }

 private:
  const Share& share_;
  std::unique_ptr<Session> session_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_HELD_SESSION_H_
