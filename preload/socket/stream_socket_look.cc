// A StreamSocket over a kernel RNIC looks at its completion queue before it sleeps.
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>

#include "preload/confinement.h"
#include "preload/socket/clock.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// How often the kernel gave this thread's core to another one although this one could have gone on.
long TimesSetAside() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

bool StreamSocket::LookAtLink() {
  const bool quick = session_->queue_pair().owns_event_fd() && observers_.empty();
  const bool any = quick ? session_->PollAvailable() : session_->ReadAvailable();
  if (any || !quick) AfterProgress();
  return any;
}

bool StreamSocket::LooksBeforeSleep() const {
  return state_ == State::kSdp && session_->queue_pair().owns_event_fd() && !session_->link_ended() && !Confined();
}

// The core is offered to others before each look. That a thread took it is a sign that it is needed: no more looks, and none for a while.
bool StreamSocket::LookBeforeSleep(Lock& lock, Time deadline) {
  const Duration budget = poll_budget_.Next();
  if (budget > Duration::zero()) {
    const Time until = std::min(deadline, Now() + budget);
    const uint64_t wakes = waiters_.wakes();
    const long set_aside = TimesSetAside();
    bool crowded = false;
    do {
      if (session_->PollAvailable()) {
        ++session_->waits().polled;
        poll_budget_.NoteFound();
        AfterProgress();
        return true;
      }
      lock.unlock();
      sched_yield();
      crowded = TimesSetAside() != set_aside;
      lock.lock();
      if (state_ != State::kSdp || session_ == nullptr || waiters_.wakes() != wakes) return true;
    } while (!crowded && Now() < until);
    if (crowded) poll_budget_.NoteCrowded();
  }
  // Asks to be woken, and takes what came before that.
  const bool any = session_->ReadAvailable();
  AfterProgress();
  return any || session_->link_ended();
}

}  // namespace sdp::preload
