// What the helper thread does for listeners: it shakes hands where nobody accepts, and registers again where
// the port mapper daemon ended.
#include <poll.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/listener.h"
#include "preload/socket/options.h"
#include "preload/socket/registration.h"

namespace sdp::preload {
namespace {

// How long a daemon may take to answer the helper, which has other work.
constexpr Duration kRenewalLimit = std::chrono::milliseconds(20);

bool IsReadable(int fd) {
  pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
  timespec zero{};
  return real.ppoll(&poll, 1, &zero, nullptr) > 0;
}

}  // namespace

Background::Wait Listener::Incoming::Run(Time now) {
  std::lock_guard lock(listener->mutex_);
  return finished ? Background::Wait{.done = true} : Advance(now);
}

// With the lock held.
Background::Wait Listener::Incoming::Advance(Time now) {
  try {
    return Continue(now);
  } catch (const std::bad_alloc&) {
    HiddenFds::Close(fd);  // its peer is told at once
    finished = true;
    listener->SettleWork();
    return {.done = true};
  }
}

// With the lock held.
Background::Wait Listener::Incoming::Continue(Time now) {
  if (session == nullptr) {
    switch (handshake.Step(now)) {
      case AcceptHandshake::Outcome::kPending:
        return handshake.wait();
      case AcceptHandshake::Outcome::kEstablished:
        session = handshake.TakeSession();
        break;
      case AcceptHandshake::Outcome::kFailed:
        HiddenFds::Close(fd);
        finished = true;
        listener->SettleWork();
        return {.done = true};
    }
  }
  const Time since = Now();
  // Not further than that takes: what the application sets on the connection, as SO_OOBINLINE, is to hold for
  // all it receives.
  if (session->has_unsent()) session->ReadAvailable();
  const Time until = session->start_until();
  if (until != kNever && now < until) return {.fd = session->LinkOf(fd), .events = POLLIN, .deadline = until};
  if (until != kNever) {  // no RTR came: it is not a connection yet, and accept is not to return it
    SDP_LOG(kInfo, "dropped a connection from %s to the SDP port: nothing came behind its MPA Request",
            ToEndpoint(handshake.peer()).ToString().c_str());
    HiddenFds::Close(fd);
  } else {
    listener->PushReady(
        {.fd = fd, .session = std::move(session), .peer = handshake.peer(), .since = since, .begun = begun});
  }
  finished = true;
  listener->SettleWork();
  return {.done = true};
}

Socket* Listener::Incoming::owner() { return listener->owner_; }

// Sees a request; gives the application kPatience to take it; takes it itself if it is still there.
Background::Wait Listener::Watch::Run(Time now) {
  std::lock_guard lock(listener->mutex_);
  if (listener->closed_ || listener->leaving_) return {.done = true};
  if (!listener->HelperMayAccept()) {
    readable_seen = false;
    return {.done = true};
  }
  const bool readable = IsReadable(listener->sdp_fd());
  if (readable && listener->shared_ && listener->IsShut()) {
    listener->CloseKernelSide();
    return {.done = true};
  }
  // Another process may be free for what this one leaves in the kernel: where they have no queue in common,
  // one in stock is enough.
  const bool stocked = listener->shared_ && listener->in_stock() > 0 && !listener->common_.usable();
  if (readable && !stocked && !listener->full() && (readable_seen || at_once)) {
    listener->AcceptAhead(/*shake_hands=*/false);
    readable_seen = at_once = false;
  } else {
    readable_seen = readable;
  }
  // Full: the rest waits in the kernel, as TCP's does.
  if (readable) return {.deadline = now + kPatience * (stocked || listener->full() ? 4 : 1)};
  // The helper is not to wake up for each connection that the program takes, or that its workers take.
  if (std::exchange(listener->at_it_, false)) return {.deadline = now + kPatience};
  rested = !rested && !listener->first_hand();
  if (rested) return {.deadline = now + 4 * kPatience};
  return {.fd = listener->sdp_fd(), .events = POLLIN};
}

Background::Wait Listener::Tending::Run(Time now) {
  std::lock_guard lock(listener->mutex_);
  if (listener->closed_) return {.done = true};
  Background::Wait wait{.done = true};
  for (Ready& ready : listener->ready_) {
    if (now >= ready.session->start_until()) continue;  // who accepts it ends it
    if (!ready.session->has_unsent()) continue;
    // From the HelloAck on its place in the line counts, which others may have to hear of at once
    // (MoveToCommon).
    const bool early = now - ready.since < kPatience;
    if (!early) ready.session->ReadAvailable();
    if (!ready.session->has_unsent()) continue;
    wait.done = false;
    if (early) {
      wait.deadline = std::min(wait.deadline, ready.since + kPatience);
    } else if (wait.fd < 0) {
      // One descriptor at a time; the others are looked at again after a while.
      wait.fd = ready.session->LinkOf(ready.fd);
      wait.events = POLLIN;
      wait.deadline = std::min(wait.deadline, ready.session->start_until());
    } else {
      wait.deadline = std::min(wait.deadline, now + 4 * kPatience);
    }
  }
  if (!listener->shared_ || !(listener->common_.at_work() || listener->common_.usable())) return wait;
  const Time next = listener->MoveToCommon(now, kPatience);
  if (next == kNever) return wait;
  wait.done = false;
  wait.deadline = std::min(wait.deadline, next);
  return wait;
}

Socket* Listener::Tending::owner() { return listener->owner_; }

Socket* Listener::Watch::owner() { return listener->owner_; }

Background::Wait Listener::Renewal::Run(Time now) {
  const int conventional_fd = listener->owner_->AnyDescriptor();
  bool registered = false;
  {
    std::lock_guard lock(listener->mutex_);
    if (listener->closed_ || conventional_fd < 0 || listener->IsShut()) return {.done = true};
    const int fd = listener->registration_fd_;
    // Readable: its end of file, which says that the daemon is gone.
    registered = fd >= 0 && !IsReadable(fd);
    if (fd >= 0 && !registered) HiddenFds::Close(listener->registration_fd_.exchange(-1));
  }
  // Not under the lock: they may wait for the daemon.
  if (!registered) {
    const auto wait = RegisterAgain(conventional_fd, now);
    listener->owner_->PublishStanding();
    if (wait) return *wait;
  }
  std::string why;
  listener->OpenKernelSide(conventional_fd, kRenewalLimit, &why);
  std::lock_guard lock(listener->mutex_);
  if (listener->closed_) return {.done = true};
  return {.fd = listener->registration_fd_, .events = POLLIN};
}

// Empty: it is registered.
std::optional<Background::Wait> Listener::Renewal::RegisterAgain(int conventional_fd, Time now) {
  const auto registered = RegisterSdp(conventional_fd, listener->sdp_fd(), kRenewalLimit);
  std::lock_guard lock(listener->mutex_);
  listener->standing_ = registered ? RegisteredBy(*registered) : NotRegistered(registered.error());
  if (!registered) {
    if (was_registered) return Background::Wait{.deadline = now + kRenewalInterval};
    listener->dormant_ = true;
    return Background::Wait{.done = true};
  }
  was_registered = true;
  if (listener->closed_ || HiddenFds::HideTracked(*registered, &listener->registration_fd_) < 0) {
    if (listener->closed_) real.close(*registered);
    return Background::Wait{.done = true};
  }
  SDP_LOG(kInfo, "registered with the port mapper: SDP on %s",
          ToEndpoint(listener->sdp_address_).ToString().c_str());
  return std::nullopt;
}

Socket* Listener::Renewal::owner() { return listener->owner_; }

}  // namespace sdp::preload
