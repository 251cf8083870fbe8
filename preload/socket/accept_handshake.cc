#include "preload/socket/accept_handshake.h"

#include <poll.h>

#include "preload/guard.h"
#include "preload/log.h"
#include "preload/socket/address.h"
#include "preload/socket/asked_port.h"
#include "preload/socket/clock.h"
#include "preload/socket/options.h"
#include "preload/socket/session_transfer.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

constexpr timespec kPatienceForAnswer{.tv_sec = 0, .tv_nsec = 500'000};

}  // namespace

AcceptHandshake::AcceptHandshake(int fd, const Address& peer, uint16_t service,
                                 const ConnectionTuning& tuning, Time now)
    : fd_(fd),
      peer_(peer),
      service_(service),
      tuning_(tuning),
      connector_(iwarp::Listen(fd, SoftOptions(), now)) {}

AcceptHandshake::Outcome AcceptHandshake::Step(Time now) {
  verbs::ConnectState state = connector_->Step(now);
  if (state == verbs::ConnectState::kRequested && !accepted_) {
    const std::optional<uint16_t> asked = AskedPort(connector_->peer_private_data());
    if (asked.value_or(0) != 0 && service_ != 0 && *asked != service_)
      return Reject("it asks for port " + std::to_string(*asked), now);
    const engine::Options options = EngineOptions(rnic_, tuning_);
    engine_ = std::make_unique<engine::Engine>(engine::Role::kAccepting, options);
    if (const auto hello = engine_->HandleHello(connector_->peer_private_data()); !hello)
      return Reject(std::string("its Hello is not acceptable: ") + engine::ToString(hello.error()), now);
    accepted_ = true;
    const bool kin = asked && connector_->may_open();
    send_first_ = !kin && connector_->may_send_first();
    if (!send_first_) {
      const auto ack = engine_->HelloAck();
      reply_ = kin ? WithAskedPort(ack, *asked) : std::vector<std::byte>(ack.begin(), ack.end());
    }
    connector_->Accept(reply_, QpOptions(options));
    state = connector_->Step(now);
  }
  switch (state) {
    case verbs::ConnectState::kInProgress:
    case verbs::ConnectState::kRequested:
      return Outcome::kPending;
    case verbs::ConnectState::kRejected:
    case verbs::ConnectState::kFailed:
      return Fail(connector_->cause().text);
    case verbs::ConnectState::kEstablished:
      break;
  }
  const bool kin = connector_->is_open();
  session_ = std::make_unique<Session>(std::move(engine_), connector_->TakeQueuePair());
  session_->recorder().NotePrivateData(stats::NoteDirection::kIn, connector_->peer_private_data());
  if (!send_first_) session_->recorder().NotePrivateData(stats::NoteDirection::kOut, reply_);
  session_->kinship().Set(kin);
  connector_.reset();
  if (send_first_) {
    session_->engine().SendHelloAck();  // SDP 8.1.1, 5; leaves after the peer's first FPDU
    session_->AwaitStart(now + config().handshake_timeout);
  }
  session_->PumpOut();
  return Outcome::kEstablished;
}

AcceptHandshake::Outcome AcceptHandshake::StepInCall(Time now) {
  const Outcome outcome = Step(now);
  if (outcome != Outcome::kPending || !accepted_) return outcome;
  pollfd link{.fd = connector_->event_fd(), .events = POLLIN, .revents = 0};
  const NoCancellation no_cancellation;  // the peer may have its answer
  return UnboundedPoll(&link, 1, &kPatienceForAnswer, nullptr) > 0 ? Step(Now()) : outcome;
}

void AcceptHandshake::SetFd(int fd) {
  fd_ = fd;
  if (connector_ != nullptr) connector_->SetEventFd(fd);
}

Background::Wait AcceptHandshake::wait() const {
  const verbs::Interest interest = connector_->interest();
  return {.fd = connector_->event_fd(),
          .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
          .deadline = connector_->deadline()};
}

void AcceptHandshake::Disown() {
  if (connector_ != nullptr && connector_->event_fd() != fd_) (void)connector_.release();
  if (session_ != nullptr && !session_->transfer().portable()) (void)session_.release();
}

AcceptHandshake::Outcome AcceptHandshake::Reject(const std::string& why, Time now) {
  connector_->Reject({});
  connector_->Step(now);
  return Fail(why);
}

AcceptHandshake::Outcome AcceptHandshake::Fail(const std::string& why) {
  SDP_LOG(kInfo, "dropped a connection from %s to the SDP port: %s",
          peer_.length != 0 ? ToEndpoint(peer_).ToString().c_str() : "a kernel RNIC's peer", why.c_str());
  // Only the connector's destructor ends a device's side. Without this, the peer would wait until the next
  // connection replaces this one.
  connector_.reset();
  return Outcome::kFailed;
}

}  // namespace sdp::preload
