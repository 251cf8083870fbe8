// The handshake of a ConnectAttempt on the link to the peer's SDP port, and what follows its failure.
#include <cerrno>
#include <utility>

#include "preload/config.h"
#include "preload/log.h"
#include "preload/socket/clock.h"
#include "preload/socket/connect_attempt.h"
#include "preload/socket/tcp_answers.h"

namespace sdp::preload {
namespace {

using Outcome = ConnectAttempt::Outcome;
using stats::FallbackReason;

// Returns true if the peer ended the link without a word. A Terminate is a word. So is an invalid answer,
// which the peer would only repeat. A failure of this host does not count either.
bool EndedByPeer(const verbs::LinkCause& cause) {
  return cause.end == verbs::LinkEnd::kClosedByPeer ||
         (cause.end == verbs::LinkEnd::kReset && !cause.local && cause.os_error != ETIMEDOUT);
}

}  // namespace

Outcome ConnectAttempt::StepHandshake(Time now) {
  if (connector_ != nullptr) {
    const verbs::ConnectState connected = connector_->Step(now);
    const bool over =
        connected == verbs::ConnectState::kRejected || connected == verbs::ConnectState::kFailed;
    // No listener, another one than was meant, or a program that does not know MPA.
    const bool gone = over && (kernel_rnic_ ? connector_->cause().os_error == ECONNREFUSED
                                            : connected == verbs::ConnectState::kRejected ||
                                                  connector_->cause().end != verbs::LinkEnd::kFailed);
    const bool silent = !over && connected != verbs::ConnectState::kEstablished;
    if (answer_.cached && (gone || (silent && IsOutdated(now)))) return AskAnew(now);
    if (over && kernel_rnic_ && config().rnic == RnicChoice::kAuto) {
      SDP_LOG(kInfo, "connect to %s: the embedded RNIC, because the kernel's failed (%s)",
              target_endpoint_.ToString().c_str(), connector_->cause().text.c_str());
      kernel_rnic_ = false;
      connector_.reset();
      engine_.reset();
      return ConnectLink(now);
    }
    switch (connected) {
      case verbs::ConnectState::kInProgress:
      case verbs::ConnectState::kRequested:
        if (kernel_rnic_ || now < deadline_) return Outcome::kPending;
        if (hurried()) {
          NoteGivenUp();
        } else {
          RememberReset(target_endpoint_, now);
          RememberSilence(ToEndpoint(sdp_address_), now);
        }
        return GiveUp(FallbackReason::kMpaFailed, "MPA start-up timed out");
      case verbs::ConnectState::kRejected:
        RememberReset(target_endpoint_, now);
        return GiveUp(FallbackReason::kMpaRejected, "the peer rejected the connection");
      case verbs::ConnectState::kFailed:
        was_reset_ = EndedByPeer(connector_->cause());
        if (was_reset_ && MayTryAgain()) return TryAgain(now);
        // A local failure may not affect another connection, and says nothing about the peer.
        if (connector_->cause().end != verbs::LinkEnd::kFailed) RememberReset(target_endpoint_, now);
        return GiveUp(FallbackReason::kMpaFailed, connector_->cause().text);
      case verbs::ConnectState::kEstablished:
        if (requested_ != kNever) RememberAnswer(ToEndpoint(sdp_address_));
        break;
    }
    const auto hello = engine_->Hello();
    session_ = std::make_unique<Session>(std::move(engine_), connector_->TakeQueuePair());
    session_->kinship().Set(connector_->is_open());
    // The peer may have a kernel RNIC, whose owner has to receive a message before it may send one
    // (QpOptions::accept_silence).
    const bool local = session_->queue_pair().direct() != nullptr;
    const bool speak_first =
        kernel_rnic_ || (config().mpa_peer_to_peer && !local && !session_->kinship().kin());
    const auto accepted = session_->HandleReply(hello, connector_->peer_private_data(), speak_first);
    if (!accepted) return GiveUp(FallbackReason::kHelloFailed, engine::ToString(accepted.error()));
    connector_.reset();
    session_->Pump();
  }
  if (session_->engine().state() == engine::State::kHelloSent) session_->Read();
  const engine::State state = session_->engine().state();
  if (state == engine::State::kHelloSent) {
    if (!session_->link_ended() && now < deadline_) return Outcome::kPending;
    was_reset_ = session_->link_ended();
    return GiveUp(FallbackReason::kHelloFailed, "no HelloAck came");
  }
  if (state == engine::State::kAborted &&
      !PeerLeftInOrder(session_->engine(), session_->queue_pair().cause())) {
    was_reset_ = session_->link_ended();
    if (session_->engine().abort_reason() == engine::AbortReason::kLinkLost &&
        EndedByPeer(session_->queue_pair().cause())) {
      if (MayTryAgain()) return TryAgain(now);
      if (!kernel_rnic_) RememberReset(target_endpoint_, now);
    }
    return GiveUp(FallbackReason::kHelloFailed, engine::ToString(session_->engine().abort_reason()));
  }
  return Outcome::kSdp;
}

// The listener may be as it was, and slow: it would have accepted a connection that is given up.
bool ConnectAttempt::IsOutdated(Time now) {
  if (now >= answer_.doubt_at && lookup_ == nullptr) {
    answer_.doubt_at = kNever;
    lookup_ =
        PmLookup::Start(fd_, domain_, target_endpoint_, scope_id_, WithinPatience(config().pm_timeout), now);
  }
  if (lookup_ == nullptr) return false;
  const pm::QueryState state = lookup_->Step(now);
  if (state == pm::QueryState::kAsking) return false;
  const bool moved = state == pm::QueryState::kAccepted && lookup_->sdp_address() != ToEndpoint(sdp_address_);
  lookup_.reset();
  return moved || state == pm::QueryState::kDenied;
}

Outcome ConnectAttempt::AskAnew(Time now) {
  ForgetTarget(target_endpoint_);
  lookup_.reset();
  if (kernel_rnic_) {
    kernel_rnic_ = kernel_rnic_tried_ = false;
  } else {
    Unconnect(fd_);
  }
  requested_ = kNever;
  connector_.reset();
  engine_.reset();
  phase_ = Phase::kStart;
  return Step(now);
}

// One of the processes that share a listener ended in our handshake. Another may accept the next one.
Outcome ConnectAttempt::TryAgain(Time now) {
  SDP_LOG(kDebug, "connect to %s: again, because the peer ended the handshake",
          target_endpoint_.ToString().c_str());
  if (session_ != nullptr) session_->queue_pair().Abort();
  session_.reset();
  connector_.reset();
  engine_.reset();
  Unconnect(fd_);
  return ConnectLink(now);
}

}  // namespace sdp::preload
