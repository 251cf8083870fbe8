// The port mapper's service side (SDP 7.4 and 7.5.2), without I/O.
//
// The answer to a datagram is returned by HandleDatagram and goes back, from the address that was asked, to
// the address the question came from (SDP 7.4); it is never longer than the question. The server sends
// nothing of its own accord.
//
// A transaction is only book-keeping here: the SDP listener is there before and after it, so nothing of the
// listener's depends on a PMAck. Of the two events that end the wait (SDP 7.5.2) the daemon sees the PMAck;
// the connection arrives at another process, and the time-out stands in for it.
#ifndef SDP_PORTMAPPER_ENGINE_PM_SERVER_H_
#define SDP_PORTMAPPER_ENGINE_PM_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/base/types.h"
#include "portmapper/engine/keyed_hash.h"
#include "portmapper/engine/registration_table.h"
#include "portmapper/engine/transaction_table.h"
#include "portmapper/wire/pm_message.h"

namespace sdp::pm {

struct PmServerOptions {
  PmTime pm_time{20};                              // how long clients may cache: 20 * 250 ms
  Duration ack_timeout = std::chrono::seconds(5);  // from a PMAccept to giving up its PMAck
  size_t max_transactions = 4096;
  HashKey hash_key{};  // random in the daemon
};

// What a PMReq is answered with.
struct PmAnswer {
  Endpoint sdp;  // in the IP version of the request
  PmTime pm_time;
};

// A local listener that can serve a PMReq.
struct LocalService {
  RegistrationId registration;
  Endpoint sdp;
};

struct PmServerCounters {
  uint64_t requests = 0;    // well-formed PMReqs, duplicates included
  uint64_t duplicates = 0;  // PMReqs of a waiting transaction
  uint64_t superseded = 0;  // waiting transactions that a new handle for their four-tuple ended
  uint64_t accepts = 0;
  uint64_t denies = 0;
  uint64_t acks = 0;          // PMAcks that ended a transaction
  uint64_t unknown_acks = 0;  // PMAcks of no known transaction, discarded
  uint64_t timeouts = 0;      // transactions whose PMAck never came
  uint64_t evicted = 0;       // transactions that had to go because the table was full
  uint64_t malformed = 0;     // datagrams that are no port-mapper message
  uint64_t misdirected = 0;   // PMAccepts and PMDenys: a server has no use for them
};

class PmServer {
 public:
  explicit PmServer(const PmServerOptions& options = {});

  // -- getters
  [[nodiscard]] const PmServerCounters& counters() const { return counters_; }
  [[nodiscard]] const RegistrationTable& registrations() const { return registrations_; }
  [[nodiscard]] size_t waiting() const { return transactions_.size(); }
  [[nodiscard]] PmTime pm_time() const { return options_.pm_time; }
  // Who serves this PMReq here, if anybody does. Lets the owner look whether that listener still exists
  // before the answer is given, and Unregister it if not.
  [[nodiscard]] std::optional<LocalService> FindLocal(const PmMessage& request) const;
  // What a waiting transaction of the request's four-tuple was answered with, if there is one.
  [[nodiscard]] std::optional<Endpoint> PriorAnswer(const PmMessage& request) const;

  // -- commands
  RegistrationId Register(const Registration& registration) { return registrations_.Add(registration); }
  // Waiting transactions stay: their duplicates are answered by the state of the service as it is then.
  bool Unregister(RegistrationId id) { return registrations_.Remove(id); }

  // -- inputs
  // Time never goes back. Returns the PMAccept or PMDeny to send; empty for everything that has no answer. A
  // PMReq is answered from the registrations.
  [[nodiscard]] std::optional<Datagram> HandleDatagram(Bytes datagram, Time now);
  // The same in steps, for owners who decide what to answer: HandleMalformed for what Parse refuses,
  // HandleRequest with the answer (empty: PMDeny) for a PMReq, HandleOther for the rest.
  void HandleMalformed() { ++counters_.malformed; }
  [[nodiscard]] Datagram HandleRequest(const PmMessage& request, const std::optional<PmAnswer>& answer,
                                       Time now);
  // True for a PMAck that ended a transaction.
  bool HandleOther(const PmMessage& message);
  // Call at or after NextTimeout(); early calls do nothing.
  void HandleTimeout(Time now);

  // -- outputs
  [[nodiscard]] Time NextTimeout() const { return transactions_.EarliestDeadline(); }

  [[nodiscard]] bool IsConsistent() const {
    return registrations_.IsConsistent() && transactions_.IsConsistent();
  }

 private:
  PmServerOptions options_;
  PmServerCounters counters_;
  RegistrationTable registrations_;
  TransactionTable transactions_;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_PM_SERVER_H_
