#include "portmapper/engine/pm_server.h"

#include "core/base/check.h"

namespace sdp::pm {

PmServer::PmServer(const PmServerOptions& options)
    : options_(options), transactions_(options.max_transactions, options.hash_key) {}

std::optional<LocalService> PmServer::FindLocal(const PmMessage& request) const {
  const auto id = registrations_.Find(request.ap, request.handle.value());
  if (!id) return std::nullopt;
  const auto sdp = RegistrationTable::SdpAddressFor(registrations_.Get(*id), request.ap);
  if (!sdp) return std::nullopt;
  return LocalService{*id, *sdp};
}

std::optional<Datagram> PmServer::HandleDatagram(Bytes datagram, Time now) {
  HandleTimeout(now);
  const auto message = Parse(datagram);
  if (!message) {
    HandleMalformed();
    return std::nullopt;
  }
  if (message->type != MessageType::kReq) {
    HandleOther(*message);
    return std::nullopt;
  }
  const auto local = FindLocal(*message);
  const PmTime pm_time = registrations_.IsSpread(message->ap) ? PmTime(0) : options_.pm_time;
  return HandleRequest(*message, local ? std::optional(PmAnswer{local->sdp, pm_time}) : std::nullopt, now);
}

std::optional<Endpoint> PmServer::PriorAnswer(const PmMessage& request) const {
  const Transaction* prior = transactions_.FindByRequest(request.cp, request.ap);
  return prior == nullptr ? std::nullopt : std::optional(prior->answered);
}

bool PmServer::HandleOther(const PmMessage& message) {
  if (message.type != MessageType::kAck) {
    ++counters_.misdirected;
    return false;
  }
  // SDP 7.5.2: a PMAck that does not relate to any known state MUST be discarded.
  const bool known = transactions_.RemoveByAck(message.handle, message.cp, message.ap);
  ++(known ? counters_.acks : counters_.unknown_acks);
  return known;
}

Datagram PmServer::HandleRequest(const PmMessage& request, const std::optional<PmAnswer>& answer, Time now) {
  ++counters_.requests;
  // SDP 7.5: the same five-tuple is a duplicate. SDP 7.5.2: the same four-tuple with another handle ends the
  // prior transaction. Either way the prior state goes; a duplicate that is accepted again puts it back with
  // a new deadline. The reply SHOULD tell the most recent state of the service, for a duplicate too.
  const auto count_prior = [&](std::optional<AssocHandle> prior) {
    if (prior) ++(*prior == request.handle ? counters_.duplicates : counters_.superseded);
  };
  if (!answer) {
    // SDP 7.4 has PMDeny's ApPort equal the PMReq's, 7.3.1.6 has it zero; both have it ignored on receipt.
    // All fields of the PMReq are reflected.
    count_prior(transactions_.RemoveByRequest(request.cp, request.ap));
    ++counters_.denies;
    return Serialize({MessageType::kDeny, PmTime(0), request.handle, request.cp, request.ap});
  }
  ++counters_.accepts;
  const Transaction transaction{request.handle, request.cp, request.ap, answer->sdp,
                                now + options_.ack_timeout};
  const PutOutcome outcome = transactions_.Put(transaction);
  count_prior(outcome.replaced);
  if (outcome.over_oldest) ++counters_.evicted;
  return Serialize({MessageType::kAccept, answer->pm_time, request.handle, request.cp, answer->sdp});
}

void PmServer::HandleTimeout(Time now) {
  counters_.timeouts += transactions_.RemoveExpired(now);
  SDP_DCHECK(registrations_.IsConsistent());
}

}  // namespace sdp::pm
