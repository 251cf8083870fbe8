// How a Session's link ends that has carried an AbortConn or a Terminate. Made for one call; keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_ABORTED_LINK_H_
#define SDP_PRELOAD_SOCKET_ABORTED_LINK_H_

#include "preload/socket/session.h"

namespace sdp::preload {

class Session::AbortedLink {
 public:
  explicit AbortedLink(Session& session) : s_(session) {}

  // Returns true if the connection has been aborted, but not its link, which has carried the message.
  [[nodiscard]] bool outlives() const;
  // Resets that link. First the peer must acknowledge the message, and answer or end its direction, or have
  // had time to (SDP 8.2.2). Returns when to call again; kNever: the link is gone.
  Time End(Time now);

 private:
  Session& s_;
};

inline Session::AbortedLink Session::aborted_link() { return AbortedLink(*this); }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ABORTED_LINK_H_
