#include "preload/socket/link_move.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "preload/config.h"
#include "preload/fail.h"
#include "preload/log.h"

namespace sdp::preload {
namespace {

// How long the peer has to end its side of the old link after this end did.
constexpr Duration kPatienceForEnd = std::chrono::seconds(2);
// How soon to look again at what no event tells.
constexpr Duration kLook = std::chrono::milliseconds(1);

}  // namespace

std::unique_ptr<LinkMove> LinkMove::Begin(const verbs::QueuePair& left, uint16_t port, Duration rest,
                                          Time now) {
  return left.device() != nullptr ? MakeRdmaLinkMove(*left.device(), port, rest, now)
                                  : MakeTcpLinkMove(left.event_fd(), port, rest, now);
}

LinkMove::LinkMove(uint16_t port, Duration rest, Time now)
    : port_(port), rest_(rest), deadline_(now + kPatienceForEnd) {}

void LinkMove::NoteLeft(Time now) {
  phase_ = Phase::kLeft;
  rest_ends_ = now + rest_;
  deadline_ = rest_ends_ + config().handshake_timeout;
}

void LinkMove::Connect(std::unique_ptr<verbs::QueuePair>* left, const Address& peer, const Hello& hello,
                       const verbs::QpOptions& qp, Time now) {
  const KeepErrno keep;
  hello_ = hello;
  qp_ = qp;
  if (target_.length == 0) target_ = peer;
  SetPort(target_, port_);
  deadline_ = now + config().handshake_timeout;
  phase_ = Phase::kLink;
  BeginLink(left, now);
}

void LinkMove::BeginHandshake(verbs::QueuePair& left, std::unique_ptr<verbs::Connector> connector, Time now) {
  connector_ = std::move(connector);
  phase_ = Phase::kHandshake;
  if (connector_ == nullptr) return Fail(0, "the RNIC makes no other connection");
  StepHandshake(left, now);
}

void LinkMove::Step(verbs::QueuePair& left, Time now) {
  if (phase_ == Phase::kLink) {
    StepLink(left, now);
  } else if (phase_ == Phase::kHandshake) {
    StepHandshake(left, now);
  }
  if ((phase_ == Phase::kLink || phase_ == Phase::kHandshake) && late(now))
    Fail(ETIMEDOUT, strerrordesc_np(ETIMEDOUT));
}

void LinkMove::StepHandshake(verbs::QueuePair& left, Time now) {
  connector_->SetEventFd(left.event_fd());
  switch (connector_->Step(now)) {
    case verbs::ConnectState::kInProgress:
    case verbs::ConnectState::kRequested:
      return;
    case verbs::ConnectState::kRejected:
      return Fail(0, "the peer rejected the connection");
    case verbs::ConnectState::kFailed:
      if (!TryOtherwise(left, now)) Fail(late(now) ? ETIMEDOUT : 0, connector_->cause().text);
      return;
    case verbs::ConnectState::kEstablished:
      phase_ = Phase::kThere;
      return;
  }
}

void LinkMove::NoteOtherPort(int error) const {
  SDP_LOG(kInfo, "connection with %s goes on from another port than %u: %s",
          ToEndpoint(target_).ToString().c_str(), Port(source_), strerrordesc_np(error));
}

void LinkMove::Fail(int os_error, const std::string& what) {
  cause_ = Cause(os_error, what);
  phase_ = Phase::kFailed;
}

// To the application its connection is lost. It knows nothing of another one that was refused, so only a
// time-out is passed on.
verbs::LinkCause LinkMove::Cause(int os_error, const std::string& what) const {
  return {.end = verbs::LinkEnd::kReset,
          .os_error = os_error == ETIMEDOUT ? ETIMEDOUT : 0,
          .text = "Socket Duplication, to " + ToEndpoint(target_).ToString() + ": " + what};
}

std::unique_ptr<verbs::QueuePair> LinkMove::Take() {
  phase_ = Phase::kNewLink;
  return connector_->TakeQueuePair();
}

short LinkMove::events() const {
  if (phase_ == Phase::kLink) return POLLOUT;
  if (phase_ != Phase::kHandshake) return 0;
  const verbs::Interest interest = connector_->interest();
  return static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0));
}

Time LinkMove::deadline(Time now) const {
  if (phase_ == Phase::kLeft && resting(now)) return rest_ends_;
  if (phase_ == Phase::kLeft || (phase_ == Phase::kLeaving && (!ends_in_order() || late(now))))
    return now + kLook;
  if (phase_ == Phase::kHandshake) return std::min(connector_->deadline(), deadline_);
  return deadline_;
}

}  // namespace sdp::preload
