// Signals that a StreamSocket's owner gets. SIGIO for data and room comes from the kernel, since the link's
// bytes are what it is about; an arrival that is not the stream's (credit, say) raises it, too, and programs
// look. What the kernel does not see is raised here: SIGURG, which takes somebody who reads the link, so the
// helper thread watches the connections that have an owner; and what an SDP listener has.
#include <poll.h>
#include <signal.h>

#include "preload/socket/looks.h"
#include "preload/socket/owner_signal.h"
#include "preload/socket/restart.h"
#include "preload/socket/stream_socket.h"
#include "preload/socket/waiting.h"

namespace sdp::preload {

void StreamSocket::OwnerChanged(int fd) {
  Lock lock(mutex_);
  board_.SetHasOwner(HasOwner(fd));
  if (state_ == State::kListening) listening_.listener->SetSignals(board_.has_owner() ? fd : -1);
  if (!usable()) return;
  if (Waiting(*this).LeaveBell()) Looks(*this).Look();  // the kernel tells the owner of doorbells alone
  upkeep_.LeaveToBackground();
}

// Nothing waits to be sent. A reader in its sleep hears of everything itself, and gives the connection back
// when it is through.
Background::Wait StreamSocket::Upkeep::IdleWait() {
  Background::Wait wait{.done = s_.corked_.empty(), .deadline = s_.corked_.due()};
  if (!ListensForPeer()) return wait;
  wait.done = false;
  if (s_.HasSleepers()) return wait;
  const Background::Wait link = LinkWait(s_.numbers_.any(), wait.deadline);
  // Room is of no interest.
  if ((link.events & POLLIN) == 0)
    return {.deadline = std::min(wait.deadline, Now() + s_.share_.NextLook(s_.calls_inside_.kept()))};
  return {.fd = link.fd, .events = POLLIN, .deadline = wait.deadline};
}

bool StreamSocket::Upkeep::ListensForPeer() {
  if (!s_.usable() || s_.session_->link_ended() || s_.numbers_.none()) return false;
  // Shut down both ways: what comes is answered with a reset.
  const bool refuses = s_.tcp_.receive_shut && !s_.engine().can_send() && !s_.engine().peer_closed();
  return s_.board_.has_owner() || refuses;
}

}  // namespace sdp::preload
