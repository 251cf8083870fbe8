// A StreamSocket over a kernel RNIC looks at its completion queue before it sleeps.
#include <algorithm>

#include "preload/confinement.h"
#include "preload/socket/clock.h"
#include "preload/socket/core_watch.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

bool StreamSocket::LookAtLink() {
  const bool quick = queue_pair().owns_event_fd() && observers_.empty();
  const bool any = quick ? session_->PollAvailable() : session_->ReadAvailable();
  if (any || !quick) AfterProgress();
  return any;
}

bool StreamSocket::LooksBeforeSleep() const {
  return state_ == State::kSdp && queue_pair().owns_event_fd() && !session_->link_ended() && !Confined();
}

// The core is offered to others after every few looks. That a thread took it is a sign that it is needed: no more looks, none for a while.
bool StreamSocket::LookBeforeSleep(Lock& lock, Time deadline, Awaited awaited) {
  const Duration budget = poll_budget_.Next();
  if (budget > Duration::zero()) {
    const Time until = std::min(deadline, Now() + budget);
    const uint64_t wakes = waiters_.wakes();
    CoreWatch core;
    bool crowded = false;
    do {
      for (int i = 0; i < CoreWatch::kLooksPerOffer; ++i) {
        if (!session_->PollAvailable()) continue;
        ++session_->waits().polled;
        poll_budget_.NoteFound();
        AfterProgress();
        return true;
      }
      lock.unlock();
      crowded = core.OfferedAndTaken();
      lock.lock();
      if (state_ != State::kSdp || session_ == nullptr || waiters_.wakes() != wakes) return true;
    } while (!crowded && Now() < until);
    if (crowded) poll_budget_.NoteCrowded();
  }
  return TakeBeforeSleep(awaited);
}

// Asks to be woken, where that is not so already, and takes what came before that.
bool StreamSocket::TakeBeforeSleep(Awaited awaited) {
  const bool any = awaited == Awaited::kSolicited && AwaitsSolicitedAlone()
                       ? session_->ReadForSolicited()
                       : !session_->queue_pair().may_sleep() && session_->ReadAvailable();
  AfterProgress();
  return any || session_->link_ended();
}

bool StreamSocket::LookAtQueue() {
  std::lock_guard lock(mutex_);
  if (!LooksBeforeSleep()) return true;  // it is another socket by now
  if (!session_->PollAvailable()) return false;
  AfterProgress();
  return true;
}

bool StreamSocket::EndLook(LookResult result) {
  std::lock_guard lock(mutex_);
  if (!LooksBeforeSleep()) return true;
  switch (result) {
    case LookResult::kFound:
      ++session_->waits().polled;
      poll_budget_.NoteFound();
      return true;
    case LookResult::kCrowded:
      poll_budget_.NoteCrowded();
      break;
    case LookResult::kInVain:
      break;
  }
  return TakeBeforeSleep(Awaited::kAll);
}

void StreamSocket::NoteSlept(Duration lasted, bool came) {
  std::lock_guard lock(mutex_);
  if (!LooksBeforeSleep()) return;
  if (came) ++session_->waits().slept;
  came ? poll_budget_.NoteSlept(lasted) : poll_budget_.NoteWaited(lasted);
}

}  // namespace sdp::preload
