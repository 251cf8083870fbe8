// The connecting peer's side of one port-mapper query (SDP 7.4 and 7.5.1), without I/O: the owner has a UDP
// socket connected to the target's port mapper, feeds in what arrives and sends what is polled.
//
//    PmClient client(query, options, now);
//    loop:
//      while (auto datagram = client.PollTransmit()) send(udp, *datagram);
//      if (client.state() is not kAsking) break;       // after the transmit loop: an accepted query still
//      owes its PMAck poll(udp, until client.NextTimeout()); datagram arrived: client.HandleDatagram(bytes,
//      now) recv said ECONNREFUSED, EHOSTUNREACH, ENETUNREACH:  client.HandleUnreachable(now) time is up:
//      client.HandleTimeout(now)
#ifndef SDP_PORTMAPPER_ENGINE_PM_CLIENT_H_
#define SDP_PORTMAPPER_ENGINE_PM_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "portmapper/wire/pm_message.h"

namespace sdp::pm {

enum class QueryState : uint8_t {
  kAsking,       // no reply yet
  kAccepted,     // sdp_address() and cache_time() hold
  kDenied,       // PMDeny, or an accept that names an address nobody should connect to
  kSilent,       // nothing came within the limit: no port mapper there, or it is out of reach
  kUnreachable,  // the network said so (ICMP)
};
[[nodiscard]] std::string_view ToString(QueryState state);

struct PmClientOptions {
  Duration first_timeout = std::chrono::milliseconds(40);   // doubled after each retransmission
  uint32_t retransmissions = 3;                             // PMReqs after the first
  Duration overall_limit = std::chrono::milliseconds(300);  // from construction to kSilent
};

// Query says who asks for what. All endpoints are sent as they are given; normalise v4-mapped ones first.
// Local and target have the same IP version. The caller sees to it that (handle, local) is unique for the
// life of a packet in the network (SDP 7.5.1): local.port is that of the TCP socket that is going to connect,
// and bound already.
struct PmQuery {
  AssocHandle handle;
  Endpoint local;   // CpIPAddr, CpPort
  Endpoint target;  // the conventional address: ApIPAddr, ApPort
};

class PmClient {
 public:
  // Arms the first time-out; the first PMReq can be polled at once.
  PmClient(const PmQuery& query, const PmClientOptions& options, Time now);

  // -- getters
  [[nodiscard]] QueryState state() const { return state_; }
  // kAccepted only: where to connect for SDP.
  [[nodiscard]] const Endpoint& sdp_address() const { return sdp_address_; }
  // kAccepted only: how long the answer may be cached from its receipt; 0 for this one connection only,
  // kForever.
  [[nodiscard]] Duration cache_time() const { return cache_time_; }
  // From the construction to the reply that decided; an upper bound where a request was lost. Zero: no reply.
  [[nodiscard]] Duration round_trip() const { return round_trip_; }
  [[nodiscard]] const PmQuery& query() const { return query_; }
  [[nodiscard]] uint32_t requests_sent() const { return requests_sent_; }
  // Datagrams that were not the answer: malformed, of another transaction, or a second reply.
  [[nodiscard]] uint32_t discarded() const { return discarded_; }

  // -- inputs
  // The first PMAccept or PMDeny that matches (AssocHandle, CpPort, CpIPAddr) decides; all else is discarded.
  void HandleDatagram(Bytes datagram, Time now);
  // The socket reported that the port or the host is unreachable. Ends the query if it is still asking.
  void HandleUnreachable(Time now);
  // Call at or after NextTimeout(); early calls do nothing.
  void HandleTimeout(Time now);

  // -- outputs
  // The next datagram to send to the port mapper. If it cannot be sent, that is a loss like any other.
  [[nodiscard]] std::optional<Datagram> PollTransmit();
  // When to call HandleTimeout; kNever once the query is decided.
  [[nodiscard]] Time NextTimeout() const;

  [[nodiscard]] bool IsConsistent() const;

 private:
  void HandleAccept(const PmMessage& reply);

  PmQuery query_;
  QueryState state_ = QueryState::kAsking;
  Endpoint sdp_address_;
  Duration cache_time_{};
  Duration round_trip_{};
  Time began_;
  std::optional<PmMessage> outgoing_;
  Time deadline_;       // of the whole query
  Time retransmit_at_;  // at most deadline_
  Duration next_interval_;
  uint32_t retransmissions_left_;
  uint32_t requests_sent_ = 0;
  uint32_t discarded_ = 0;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_PM_CLIENT_H_
