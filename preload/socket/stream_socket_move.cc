// A StreamSocket whose connection goes on over another link, because its peer has asked for Socket
// Duplication (SDP 13). The steps are taken by whoever is in a call, and by the helper thread, as with
// everything else that the peer makes wait.
#include <algorithm>

#include "preload/log.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

// Offers have ended with what they moved: the engine leaves the link without them.
void StreamSocket::LeadMove() {
  if (!session_->moving()) return;
  CollectLoans();
  // The engine counts announcements of urgent data anew: what the owner was told is of another connection.
  if (session_->LeadMove(names_.sdp_peer.length != 0 ? names_.sdp_peer : names_.peer))
    urgent_mark_.ForgetAnnouncements();
}

void StreamSocket::FollowMove() {
  LeadMove();
  if (!session_->TakeMoved()) return;
  board_.WakeAll();  // there is something else to wait for
  QuietLinks::Unwatch(&quiet_, LinkOf(LinkFd()));
  if (session_->moving()) return LeaveToBackground();
  if (session_->link_ended() || numbers_.none()) return;
  const Address of_rnic = session_->PeerName();
  names_.sdp_peer = of_rnic.length != 0 ? of_rnic : PeerAddress(numbers_.any());
  SDP_LOG(
      kInfo,
      "connection with %s goes on over another link (%s), to %s: its peer has asked for Socket Duplication",
      ToEndpoint(names_.peer).ToString().c_str(), queue_pair().rnic_name(),
      ToEndpoint(names_.sdp_peer).ToString().c_str());
  report_.PublishAll(*session_, names());
}

Background::Wait StreamSocket::RunMove(Time look_again) {
  session_->ReadAvailable();
  AfterProgress();
  if (numbers_.none()) return {.done = true};
  if (!session_->moving()) return {.deadline = Now()};
  const Time until = std::min(session_->move_deadline(), look_again);
  // The reader in its sleep sees the end of the old link.
  if (session_->being_read()) return {.deadline = until};
  return LinkWait(numbers_.any(), until);
}

}  // namespace sdp::preload
