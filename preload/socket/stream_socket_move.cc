// A StreamSocket whose connection goes on over another link, because its peer has asked for Socket
// Duplication (SDP 13). The steps are taken by whoever is in a call, and by the helper thread, as with
// everything else that the peer makes wait.
#include <algorithm>

#include "preload/log.h"
#include "preload/socket/clock.h"
#include "preload/socket/lender.h"
#include "preload/socket/link_names.h"
#include "preload/socket/session_moves.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

// Offers have ended with what they moved: the engine leaves the link without them.
void StreamSocket::Upkeep::LeadMove() {
  if (!s_.session_->moving()) return;
  Lender(s_).CollectLoans();
  // The engine counts announcements of urgent data anew: what the owner was told is of another connection.
  if (s_.session_->moves().Lead(s_.names_.sdp_peer.length != 0 ? s_.names_.sdp_peer : s_.names_.peer))
    s_.urgent_mark_.ForgetAnnouncements();
}

void StreamSocket::Upkeep::FollowMove() {
  LeadMove();
  if (!s_.session_->moves().TakeStepped()) return;
  s_.board_.WakeAll();  // there is something else to wait for
  QuietLinks::Unwatch(this, s_.LinkOf(s_.LinkFd()));
  if (s_.session_->moving()) return LeaveToBackground();
  if (s_.session_->link_ended() || s_.numbers_.none()) return;
  const Address of_rnic = NamesOf(*s_.session_).peer;
  s_.names_.sdp_peer = of_rnic.length != 0 ? of_rnic : PeerAddress(s_.numbers_.any());
  SDP_LOG(
      kInfo,
      "connection with %s goes on over another link (%s), to %s: its peer has asked for Socket Duplication",
      ToEndpoint(s_.names_.peer).ToString().c_str(), s_.queue_pair().facts().rnic,
      ToEndpoint(s_.names_.sdp_peer).ToString().c_str());
  s_.report_.PublishAll(*s_.session_, s_.names());
}

Background::Wait StreamSocket::Upkeep::RunMove(Time look_again) {
  s_.session_->Read();
  s_.AfterProgress();
  if (s_.numbers_.none()) return {.done = true};
  if (!s_.session_->moving()) return {.deadline = Now()};
  const Time until = std::min(s_.session_->moves().deadline(), look_again);
  return LinkWait(s_.numbers_.any(), until);
}

}  // namespace sdp::preload
