#include "portmapper/engine/pm_client.h"

#include <algorithm>

#include "core/base/check.h"

namespace sdp::pm {
namespace {

// A redirected address is the mapper's good right (SDP 7.3.1.10), but not to places where nobody can listen,
// nor from a remote host to our own loopback, which would connect the program to some other service of its
// own host.
bool IsUsable(const Endpoint& sdp_address, const Endpoint& target) {
  const Endpoint address = NormalizeMapped(sdp_address);
  if (address.port == 0 || address.IsWildcard() || address.IsMulticastOrBroadcast()) return false;
  return !address.IsLoopback() || NormalizeMapped(target).IsLoopback();
}

}  // namespace

std::string_view ToString(QueryState state) {
  switch (state) {
    case QueryState::kAsking:
      return "asking";
    case QueryState::kAccepted:
      return "accepted";
    case QueryState::kDenied:
      return "denied";
    case QueryState::kSilent:
      return "silent";
    case QueryState::kUnreachable:
      return "unreachable";
  }
  return "unknown";
}

PmClient::PmClient(const PmQuery& query, const PmClientOptions& options, Time now)
    : query_(query),
      began_(now),
      deadline_(now + options.overall_limit),
      retransmit_at_(std::min(now + options.first_timeout, deadline_)),
      next_interval_(options.first_timeout * 2),
      retransmissions_left_(options.retransmissions) {
  SDP_CHECK(query.local.version == query.target.version);
  outgoing_ = PmMessage{MessageType::kReq, kPmTimeDoNotCache, query_.handle, query_.local, query_.target};
}

void PmClient::HandleDatagram(Bytes datagram, Time now) {
  const Result<PmMessage, PmWireError> reply = Parse(datagram);
  // SDP 7.5: replies are matched by (AssocHandle, CpPort, CpIPAddr). SDP 7.5.1: the first one decides, the
  // rest MUST be discarded, and so MUST one that comes when we no longer ask.
  if (!reply || state_ != QueryState::kAsking || now >= deadline_ || reply->handle != query_.handle ||
      reply->cp != query_.local) {
    ++discarded_;
    return;
  }
  switch (reply->type) {
    case MessageType::kAccept:
      round_trip_ = now - began_;
      HandleAccept(*reply);
      break;
    case MessageType::kDeny:
      round_trip_ = now - began_;
      state_ = QueryState::kDenied;
      outgoing_.reset();
      break;
    case MessageType::kReq:
    case MessageType::kAck:
      ++discarded_;
      break;
  }
  SDP_DCHECK(IsConsistent());
}

void PmClient::HandleAccept(const PmMessage& reply) {
  // An unusable answer is acknowledged too, so that the mapper frees its state now and not by time-out.
  outgoing_ = PmMessage{MessageType::kAck, kPmTimeDoNotCache, reply.handle, reply.cp, reply.ap};
  if (!IsUsable(reply.ap, query_.target)) {
    state_ = QueryState::kDenied;
    return;
  }
  state_ = QueryState::kAccepted;
  sdp_address_ = reply.ap;
  if (sdp_address_.IsLinkLocal()) sdp_address_.scope = query_.target.scope;
  cache_time_ = ToDuration(reply.pm_time);
}

void PmClient::HandleUnreachable(Time) {
  if (state_ != QueryState::kAsking) return;
  state_ = QueryState::kUnreachable;
  outgoing_.reset();
  SDP_DCHECK(IsConsistent());
}

void PmClient::HandleTimeout(Time now) {
  if (state_ != QueryState::kAsking || now < retransmit_at_) return;
  if (now >= deadline_ || retransmissions_left_ == 0) {
    state_ = QueryState::kSilent;
    outgoing_.reset();
  } else {
    // The very same request: SDP 7.5.1 MUST use the same five values.
    --retransmissions_left_;
    outgoing_ = PmMessage{MessageType::kReq, kPmTimeDoNotCache, query_.handle, query_.local, query_.target};
    retransmit_at_ = std::min(now + next_interval_, deadline_);
    next_interval_ *= 2;
  }
  SDP_DCHECK(IsConsistent());
}

std::optional<Datagram> PmClient::PollTransmit() {
  if (!outgoing_) return std::nullopt;
  if (outgoing_->type == MessageType::kReq) ++requests_sent_;
  const Datagram datagram = Serialize(*outgoing_);
  outgoing_.reset();
  return datagram;
}

Time PmClient::NextTimeout() const { return state_ == QueryState::kAsking ? retransmit_at_ : kNever; }

bool PmClient::IsConsistent() const {
  if (retransmit_at_ > deadline_) return false;
  if (!outgoing_) return true;
  switch (state_) {
    case QueryState::kAsking:
      return outgoing_->type == MessageType::kReq;
    case QueryState::kAccepted:
    case QueryState::kDenied:
      return outgoing_->type == MessageType::kAck;
    case QueryState::kSilent:
    case QueryState::kUnreachable:
      return false;
  }
  return false;
}

}  // namespace sdp::pm
