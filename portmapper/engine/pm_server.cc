#include "portmapper/engine/pm_server.h"

#include "core/base/check.h"

namespace sdp::pm {

PmServer::PmServer(const PmServerOptions& options)
    : options_(options), transactions_(options.max_transactions) {}

std::optional<RegistrationId> PmServer::RegistrationFor(Bytes datagram) const {
  const auto message = Parse(datagram);
  if (!message || message->type != MessageType::kReq) return std::nullopt;
  return registrations_.Find(message->ap, message->handle.value());
}

std::optional<Datagram> PmServer::HandleDatagram(Bytes datagram, Time now) {
  HandleTimeout(now);
  const auto message = Parse(datagram);
  if (!message) {
    ++counters_.malformed;
    return std::nullopt;
  }
  switch (message->type) {
    case MessageType::kReq:
      return HandleRequest(*message, now);
    case MessageType::kAck:
      // SDP 7.5.2: a PMAck that does not relate to any known state MUST be discarded.
      ++(transactions_.RemoveByAck(message->handle, message->cp, message->ap) ? counters_.acks
                                                                              : counters_.unknown_acks);
      return std::nullopt;
    case MessageType::kAccept:
    case MessageType::kDeny:
      ++counters_.misdirected;
      return std::nullopt;
  }
  return std::nullopt;
}

Datagram PmServer::HandleRequest(const PmMessage& request, Time now) {
  ++counters_.requests;
  // SDP 7.5: the same five-tuple is a duplicate. SDP 7.5.2: the same four-tuple with another handle ends the
  // prior transaction. Either way the prior state goes; a duplicate that is accepted again puts it back with
  // a new deadline.
  if (const Transaction* prior = transactions_.FindByRequest(request.cp, request.ap)) {
    ++(prior->handle == request.handle ? counters_.duplicates : counters_.superseded);
    transactions_.RemoveByRequest(request.cp, request.ap);
  }

  // SDP 7.5.2: the reply SHOULD tell the most recent state of the service, for a duplicate too.
  std::optional<Endpoint> answer;
  if (const auto id = registrations_.Find(request.ap, request.handle.value())) {
    answer = RegistrationTable::SdpAddressFor(registrations_.Get(*id), request.ap);
  }
  if (!answer) {
    // SDP 7.4 has PMDeny's ApPort equal the PMReq's, 7.3.1.6 has it zero; both have it ignored on receipt.
    // All fields of the PMReq are reflected.
    ++counters_.denies;
    return Serialize({MessageType::kDeny, PmTime(0), request.handle, request.cp, request.ap});
  }
  ++counters_.accepts;
  const Transaction transaction{request.handle, request.cp, request.ap, *answer, now + options_.ack_timeout};
  if (transactions_.Put(transaction) == PutOutcome::kStoredOverOldest) ++counters_.evicted;
  return Serialize({MessageType::kAccept, options_.pm_time, request.handle, request.cp, *answer});
}

void PmServer::HandleTimeout(Time now) {
  counters_.timeouts += transactions_.RemoveExpired(now);
  SDP_DCHECK(registrations_.IsConsistent());
}

}  // namespace sdp::pm
