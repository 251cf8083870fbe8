// Signals that a StreamSocket's owner gets. SIGIO for data and room comes from the kernel, since the link's
// bytes are what it is about; an arrival that is not the stream's (credit, say) raises it, too, and programs
// look. What the kernel does not see is raised here: SIGURG, which takes somebody who reads the link, so the
// helper thread watches the connections that have an owner; and what an SDP listener has.
#include <poll.h>
#include <signal.h>

#include "preload/socket/owner_signal.h"
#include "preload/socket/restart.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

void StreamSocket::OwnerChanged(int fd) {
  Lock lock(mutex_);
  board_.SetHasOwner(HasOwner(fd));
  if (state_ == State::kListening) listening_.listener->SetSignals(board_.has_owner() ? fd : -1);
  if (state_ != State::kSdp || foreign()) return;
  if (LeaveBell()) Look();  // the kernel tells the owner of doorbells alone
  LeaveToBackground();
}

// With the lock held, after what came was read.
void StreamSocket::TellOwner() {
  if (!urgent_mark_.TakeAnnouncement(engine())) return;
  if (!numbers_.none() && SignalUrgent(numbers_.any())) urgent_mark_.NoteRaised();
}

// A read that sleeps ends with EINTR, as on TCP, if that signal's handler wants it. The handler itself runs
// behind the lock, too late to interrupt anything.
bool StreamSocket::UrgentInterrupts() {
  return urgent_mark_.TakeRaised() && session_->engine().readable_bytes() == 0 && InterruptsCalls(SIGURG);
}

// Nothing waits to be sent. A reader in its sleep hears of everything itself, and gives the connection back
// when it is through.
Background::Wait StreamSocket::IdleWait() {
  Background::Wait wait{.done = corked_.empty(), .deadline = corked_.due()};
  if (!ListensForPeer()) return wait;
  wait.done = false;
  if (session_->being_read() || HasSleepers()) return wait;
  const Background::Wait link = LinkWait(numbers_.any(), wait.deadline);
  // Room is of no interest.
  if ((link.events & POLLIN) == 0)
    return {.deadline = std::min(wait.deadline, Now() + share_.NextLook(calls_inside_.kept()))};
  return {.fd = link.fd, .events = POLLIN, .deadline = wait.deadline};
}

bool StreamSocket::ListensForPeer() {
  if (state_ != State::kSdp || foreign() || session_->link_ended() || numbers_.none()) return false;
  // Shut down both ways: what comes is answered with a reset.
  const bool refuses = tcp_.receive_shut && !engine().can_send() && !engine().peer_closed();
  return board_.has_owner() || refuses;
}

}  // namespace sdp::preload
