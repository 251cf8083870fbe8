// The way of a Listener's connections, from the kernel's queue to the program's accept.
#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "preload/hidden_fds.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/listener.h"
#include "preload/socket/owner_signal.h"

namespace sdp::preload {
namespace {

// Connections taken from the SDP listener at one look.
constexpr int kMostAtOnce = 16;

// A hidden descriptor becomes one of the application's, with the flags it asked accept for.
int Unhide(int hidden, int flags) {
  const int fd = real.fcntl(hidden, (flags & SOCK_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (fd >= 0) {
    real.fcntl(fd, F_SETFL, O_RDWR | ((flags & SOCK_NONBLOCK) != 0 ? O_NONBLOCK : 0));
    HiddenFds::Close(hidden);
  }
  return fd;
}

}  // namespace

std::unique_ptr<Session> Listener::Accept(int flags, int* fd, Address* peer) {
  std::lock_guard lock(mutex_);
  used_ = true;
  DropFinished();
  if (ready_.empty()) AdvanceAnswered();
  // Two queues, and one order, as TCP's has: who polls keeps what he has taken on, while others may wait for
  // all that came before.
  if (shared_ && (ready_.empty() || common_.FirstSince() <= ready_.front().since)) {
    Time since;
    if (auto session = AcceptCommon(flags, fd, peer, &since)) return session;
    if (errno != EAGAIN) return nullptr;
  }
  if (!ready_.empty()) return AcceptKept(flags, fd, peer);
  for (int attempts = 0; attempts < kMostAtOnce; ++attempts) {
    if (closed_) {
      errno = EINVAL;
      return nullptr;
    }
    const int accepted = AcceptFrom(sdp_fd(), flags, peer);
    if (accepted < 0) return nullptr;
    at_it_ = true;
    Taken taken(accepted);
    const Time now = Now();
    AcceptHandshake handshake(accepted, *peer, service_, tuning_, now);
    // No more than one wait in a call, and none behind one in vain.
    const bool waits = attempts == 0 && !full() && now >= next_wait_;
    const auto outcome = waits ? handshake.StepInCall(now) : handshake.Step(now);
    if (waits && outcome == AcceptHandshake::Outcome::kPending) next_wait_ = now + kPatience;
    switch (outcome) {
      case AcceptHandshake::Outcome::kEstablished:
        *fd = std::exchange(taken.fd, -1);
        return handshake.TakeSession();
      case AcceptHandshake::Outcome::kFailed:
        break;
      case AcceptHandshake::Outcome::kPending: {
        if (full()) break;
        // The request is not complete: the helper waits for the rest, within the start-up time-out.
        const int hidden = HiddenFds::Hide(accepted);
        taken.fd = hidden;
        taken.hidden = true;
        if (hidden < 0) break;
        const bool begun = shared_ && common_.BeginWork();
        incoming_.push_back(std::make_unique<Incoming>(this, hidden, std::move(handshake), begun));
        taken.fd = -1;
        Background::Add(incoming_.back().get(), Duration::zero());
        break;
      }
    }
  }
  errno = EAGAIN;
  return nullptr;
}

std::unique_ptr<Session> Listener::AcceptKept(int flags, int* fd, Address* peer) {
  const int visible = Unhide(ready_.front().fd, flags);
  if (visible < 0) return nullptr;
  Ready ready = std::move(ready_.front());
  ready_.pop_front();
  uint64_t count;
  if (ready_.empty()) (void)!real.read(ready_fd(), &count, sizeof count);
  SettleWork();
  ready.session->queue_pair().SetEventFd(visible);
  *fd = visible;
  *peer = ready.peer;
  return std::move(ready.session);
}

bool Listener::AcceptAhead(bool shake_hands) {
  bool any = false;
  DropFinished();
  // Before one is out of the kernel's hands, where a process that is about to be confined would find it.
  const bool begun = shared_ && common_.BeginWork();
  struct Settled {
    Listener* listener;
    ~Settled() { listener->SettleWork(); }
  } const settled{this};
  // Where processes share the listener each takes one at a time, or the first to look would have all the
  // work. What the helper takes is for all.
  const int most = shared_ && (shake_hands || !begun) ? 1 : kMostAtOnce;
  for (int attempts = 0; attempts < most && !full(); ++attempts) {
    Address peer;
    const int accepted = AcceptFrom(sdp_fd(), SOCK_CLOEXEC, &peer);
    if (accepted < 0) return any || errno == EAGAIN;  // another thread, or process, has it
    const int hidden = HiddenFds::Hide(accepted);
    if (hidden < 0) return any;
    Taken taken(hidden, /*is_hidden=*/true);
    any = true;
    const Time now = Now();
    AcceptHandshake handshake(hidden, peer, service_, tuning_, now);
    const auto outcome = shake_hands ? handshake.Step(now) : AcceptHandshake::Outcome::kPending;
    if (outcome == AcceptHandshake::Outcome::kEstablished) {
      PushReady({.fd = std::exchange(taken.fd, -1),
                 .session = handshake.TakeSession(),
                 .peer = peer,
                 .since = now,
                 .begun = begun});
    } else if (outcome == AcceptHandshake::Outcome::kPending) {
      incoming_.push_back(std::make_unique<Incoming>(this, hidden, std::move(handshake), begun));
      taken.fd = -1;
      Background::Add(incoming_.back().get(), Duration::zero());
    }
  }
  return any;
}

bool Listener::TakeOn() {
  std::lock_guard lock(mutex_);
  if (closed_ || leaving_ || !AcceptAhead(/*shake_hands=*/true)) return false;
  return at_it_ = true;
}

void Listener::PushReady(Ready ready) {
  if (shared_ && MayMove(*ready.session) && !AwaitsRoom() && PutIntoCommon(ready)) {
    HiddenFds::Close(ready.fd);
  } else {
    Keep(std::move(ready));
  }
  if (signal_fd_ >= 0) SignalConnection(signal_fd_, signal_number_);
}

void Listener::Keep(Ready ready) {
  ready.session->queue_pair().SetEventFd(ready.fd);
  const bool tended = ready.session->has_unsent() || ready.begun || (shared_ && common_.usable());
  const auto behind = std::upper_bound(ready_.begin(), ready_.end(), ready.since,
                                       [](Time time, const Ready& other) { return time < other.since; });
  ready_.insert(behind, std::move(ready));
  if (tended) Background::Add(&tending_, kPatience);
  const uint64_t one = 1;
  (void)!real.write(ready_fd(), &one, sizeof one);
}

}  // namespace sdp::preload
