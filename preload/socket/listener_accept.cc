// The way of a Listener's connections, from the kernel's queue to the program's accept.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "preload/hidden_fds.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/clock.h"
#include "preload/socket/listener.h"

namespace sdp::preload {
namespace {

// Connections taken from the SDP listener at one look.
constexpr int kMostAtOnce = 16;

}  // namespace

std::unique_ptr<Session> Listener::Accept(int flags, int* fd, Address* peer) {
  std::lock_guard lock(mutex_);
  used_ = true;
  arrivals_.DropFinished();
  if (auto session = arrivals_.Take(flags, fd, peer)) return session;
  if (errno != EAGAIN) return nullptr;
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
    const bool waits = attempts == 0 && !arrivals_.full() && now >= next_wait_;
    const auto outcome = waits ? handshake.StepInCall(now) : handshake.Step(now);
    if (waits && outcome == AcceptHandshake::Outcome::kPending) next_wait_ = now + kPatience;
    switch (outcome) {
      case AcceptHandshake::Outcome::kEstablished:
        *fd = std::exchange(taken.fd, -1);
        return handshake.TakeSession();
      case AcceptHandshake::Outcome::kFailed:
        break;
      case AcceptHandshake::Outcome::kPending: {
        // Others in their handshake may have all places of the backlog: the program asks, so this one goes
        // on.
        if (arrivals_.in_stock() >= Arrivals::kMostTakenOn) break;
        // The request is not complete: the helper waits for the rest, within the start-up time-out.
        const int hidden = HiddenFds::Hide(accepted);
        taken.fd = hidden;
        if (hidden < 0) break;
        const bool begun = arrivals_.BeginWork();
        if (arrivals_.Add(hidden, std::move(handshake), begun)) taken.fd = -1;
        break;
      }
    }
  }
  errno = EAGAIN;
  return nullptr;
}

bool Listener::AcceptAhead(bool shake_hands) {
  bool any = false;
  arrivals_.DropFinished();
  // Before one is out of the kernel's hands, where a process that is about to be confined would find it.
  const bool begun = arrivals_.BeginWork();
  struct Settled {
    Arrivals& arrivals;
    ~Settled() { arrivals.SettleWork(); }
  } const settled{arrivals_};
  // Where processes share the listener each takes one at a time, or the first to look would have all the
  // work. What the helper takes is for all.
  const int most = arrivals_.shared() && (shake_hands || !begun) ? 1 : kMostAtOnce;
  for (int attempts = 0; attempts < most && !arrivals_.full(); ++attempts) {
    Address peer;
    const int accepted = AcceptFrom(sdp_fd(), SOCK_CLOEXEC, &peer);
    if (accepted < 0) return any || errno == EAGAIN;  // another thread, or process, has it
    const int hidden = HiddenFds::Hide(accepted);
    if (hidden < 0) return any;
    Taken taken(hidden);
    any = true;
    const Time now = Now();
    AcceptHandshake handshake(hidden, peer, service_, tuning_, now);
    const auto outcome = shake_hands ? handshake.Step(now) : AcceptHandshake::Outcome::kPending;
    if (outcome == AcceptHandshake::Outcome::kEstablished) {
      arrivals_.Push({.fd = std::exchange(taken.fd, -1),
                      .session = handshake.TakeSession(),
                      .peer = peer,
                      .since = now,
                      .begun = begun});
    } else if (outcome == AcceptHandshake::Outcome::kPending) {
      if (arrivals_.Add(hidden, std::move(handshake), begun)) taken.fd = -1;
    }
  }
  return any;
}

bool Listener::TakeOn() {
  std::lock_guard lock(mutex_);
  if (closed_ || leaving_ || !AcceptAhead(/*shake_hands=*/true)) return false;
  return at_it_ = true;
}

// The application's descriptor for such a connection is a TCP socket that stays unconnected, as it is for one
// that it makes.
void Listener::TakeOnFromRnic(std::unique_ptr<verbs::Connector> connector) {
  arrivals_.DropFinished();
  const int fd = real.socket(domain_, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) options_.Replay(fd);
  const int hidden = fd >= 0 ? HiddenFds::Hide(fd) : -1;
  if (hidden < 0) {
    const int error = errno;
    if (MayLogError())
      SDP_LOG(kError, "a kernel RNIC\'s connection to %s is turned away: %s",
              ToEndpoint(sdp_address_).ToString().c_str(), strerrordesc_np(error));
    return;
  }
  Taken taken(hidden);
  if (arrivals_.Add(hidden, AcceptHandshake(hidden, tuning_, std::move(connector)), /*begun=*/false))
    taken.fd = -1;
}

}  // namespace sdp::preload
