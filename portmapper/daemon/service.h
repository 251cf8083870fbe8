// What happens to one datagram: whether it is heard, who may ask, who answers for the address asked about.
#ifndef SDP_PORTMAPPER_DAEMON_SERVICE_H_
#define SDP_PORTMAPPER_DAEMON_SERVICE_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/base/types.h"
#include "portmapper/daemon/local_server.h"
#include "portmapper/daemon/log.h"
#include "portmapper/daemon/own_addresses.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/admission.h"
#include "portmapper/engine/directory.h"
#include "portmapper/engine/pm_server.h"

namespace sdp::pm {

class Service {
 public:
  // The key of `server` makes hashes and cookies: random.
  Service(const PmServerOptions& server, const AdmissionOptions& admission)
      : server_(server),
        admission_(admission, server.hash_key),
        directory_(server.hash_key, server.ack_timeout) {}

  [[nodiscard]] PmServer& server() { return server_; }
  [[nodiscard]] Directory& directory() { return directory_; }
  [[nodiscard]] const PmServer& server() const { return server_; }
  [[nodiscard]] const Admission& admission() const { return admission_; }
  [[nodiscard]] const Directory& directory() const { return directory_; }
  // Who knows whether a local listener is still there; outlives the last Serve.
  void SetLocal(LocalServer* local) { local_ = local; }

  // One datagram from `source`; returns the answer, which goes back to there, if it has one.
  [[nodiscard]] std::optional<Datagram> Serve(Bytes datagram, const Endpoint& source, Time now);
  void HandleTimeout(Time now);
  [[nodiscard]] Time NextTimeout() const;

 private:
  [[nodiscard]] std::optional<PmAnswer> AnswerTo(const PmMessage& request, const Endpoint& source, Time now);
  [[nodiscard]] std::optional<Endpoint> FindLocal(const PmMessage& request, Time now);
  void MaybeWarnOfFlood(Time now);

  PmServer server_;
  Admission admission_;
  Directory directory_;
  OwnAddresses own_addresses_;
  LocalServer* local_ = nullptr;
  // What the last warning has told already.
  uint64_t evicted_reported_ = 0;
  uint64_t unheard_reported_ = 0;
  uint64_t exhausted_reported_ = 0;
  LogLimiter eviction_limiter_{1, std::chrono::minutes(1)};
  LogLimiter flood_limiter_{1, std::chrono::minutes(1)};
  LogLimiter pool_limiter_{1, std::chrono::minutes(1)};
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_SERVICE_H_
