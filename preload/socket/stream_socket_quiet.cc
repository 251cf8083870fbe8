// A StreamSocket that the program leaves alone, as the helper thread sees it (quiet_links.h).
#include "preload/socket/holders.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"

namespace sdp::preload {

// A process that shares the connection, and has as much unread as it may take off the link, enters the link
// again with its next call (EnterShared).
bool StreamSocket::Upkeep::HasQuietLink() const {
  return s_.state_ == State::kSdp && s_.session_ != nullptr && !s_.share_.given_up &&
         !s_.session_.last_known()->link_ended() && !s_.session_.last_known()->full() && s_.LinkFd() >= 0;
}

void StreamSocket::Upkeep::LookIfUnread(Time since) {
  std::unique_lock own(s_.mutex_.own(), std::try_to_lock);
  if (!own.owns_lock()) return;
  if (s_.state_ == State::kSdp && s_.session_ != nullptr && !s_.share_.given_up)
    s_.report_.PublishLate(*s_.session_.last_known(), s_.names());
  if (!HasQuietLink()) return QuietLinks::Leave(this);
  Session& known = *s_.session_.last_known();
  if (known.moving() || known.reads().Since(since, known.recorder())) return;
  // A device tells only of what comes after the queue was asked for that.
  if (verbs::Pollable* const pollable = s_.share_.with == nullptr ? known.queue_pair().pollable() : nullptr) {
    if (!pollable->always_told()) Waiting(s_).TakeBeforeSleep(Awaited::kAll);
    pollable->GiveBack();
    if (known.link_ended()) return QuietLinks::Leave(this);
  }
  if (!Waiting(s_).LeaveBell() && QuietLinks::Watch(this, s_.LinkOf(s_.LinkFd()))) return;
  own.unlock();
  TakeUnread();
}

void StreamSocket::Upkeep::TakeUnread() {
  const Lock lock(s_.mutex_);
  if (relied_on()) s_.board_.WakeAll();
  if (HasQuietLink() && !s_.foreign()) {
    if (!s_.session_->moving()) Holders(s_).OnlyLooks();
    s_.session_->Read();
    s_.AfterProgress();
    LeaveToBackground();
  }
  if (!HasQuietLink()) return QuietLinks::Leave(this);
  if (!s_.session_->moving()) QuietLinks::Watch(this, s_.LinkOf(s_.LinkFd()));
}

}  // namespace sdp::preload
