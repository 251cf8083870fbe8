// What the helper thread does for a StreamSocket, and how calls leave work to it. The helper moves what calls
// have left behind, and looks at a connection that the program leaves alone. Calls and the helper lead a move
// to another link. Made for one call; keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_UPKEEP_H_
#define SDP_PRELOAD_SOCKET_UPKEEP_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Upkeep {
 public:
  explicit Upkeep(StreamSocket& socket) : s_(socket) {}

  // Has the helper go on with what is unsent, unheard or to be trimmed.
  void LeaveToBackground();
  Background::Wait RunInBackground(Time now);
  // Returns a wait for the link at `fd`, if any event of it is of interest.
  [[nodiscard]] Background::Wait LinkWait(int fd, Time deadline) const;
  // After progress: follows the connection as it leaves its link, or has another one.
  void FollowMove();
  // Moves the connection on, also where no thread waits for it any more.
  void LeadMove();
  // Returns true if the peer's bytes are read though no call waits: for an owner's signals, or to be refused.
  bool ListensForPeer();
  // See QuietLinks::Link.
  void LookIfUnread(Time since);
  void TakeUnread();

 private:
  Background::Wait IdleWait();
  Background::Wait RunMove(Time look_again);
  Background::Wait TrimmedWait(Time now);
  // Returns true if the helper is to read what the program does not.
  [[nodiscard]] bool HasQuietLink() const;

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_UPKEEP_H_
