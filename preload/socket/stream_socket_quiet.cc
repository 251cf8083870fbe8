// A StreamSocket that the program leaves alone, as the helper thread sees it (quiet_links.h).
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

// A process that shares the connection, and has as much unread as it may take off the link, enters the link
// again with its next call (EnterShared).
bool StreamSocket::HasQuietLink() const {
  return state_ == State::kSdp && session_ != nullptr && !share_.not_inherited && !session_->link_ended() &&
         !session_->full() && LinkFd() >= 0;
}

void StreamSocket::LookIfUnread(Time since) {
  std::unique_lock own(mutex_.own(), std::try_to_lock);
  if (!own.owns_lock()) return;
  if (state_ == State::kSdp && session_ != nullptr && !share_.not_inherited)
    report_.PublishLate(*session_, names());
  if (!HasQuietLink()) return QuietLinks::Leave(&quiet_);
  if (session_->moving() || session_->ReadSince(since)) return;
  // A device tells only of what comes after the queue was asked for that.
  if (verbs::Pollable* const pollable = session_->queue_pair().pollable();
      pollable != nullptr && share_.with == nullptr) {
    if (!pollable->always_told()) TakeBeforeSleep(Awaited::kAll);
    pollable->GiveBack();
    if (session_->link_ended()) return QuietLinks::Leave(&quiet_);
  }
  if (!LeaveBell() && QuietLinks::Watch(&quiet_, LinkOf(LinkFd()))) return;
  own.unlock();
  TakeUnread();
}

void StreamSocket::TakeUnread() {
  const Lock lock(mutex_);
  if (quiet_.relied_on()) board_.WakeAll();
  if (HasQuietLink() && !foreign()) {
    if (!session_->moving()) OnlyLooks();
    session_->ReadAvailable();
    AfterProgress();
    LeaveToBackground();
  }
  if (!HasQuietLink()) return QuietLinks::Leave(&quiet_);
  if (!session_->moving()) QuietLinks::Watch(&quiet_, LinkOf(LinkFd()));
}

}  // namespace sdp::preload
