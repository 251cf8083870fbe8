// What happens to one datagram: whether it is heard, who may ask, who answers for the address asked about.
#ifndef SDP_PORTMAPPER_DAEMON_SERVICE_H_
#define SDP_PORTMAPPER_DAEMON_SERVICE_H_

#include <cstdint>
#include <optional>

#include "core/base/types.h"
#include "portmapper/daemon/local_server.h"
#include "portmapper/daemon/own_addresses.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/admission.h"
#include "portmapper/engine/alarm.h"
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
  void RaiseAlarms(Time now);

  PmServer server_;
  Admission admission_;
  Directory directory_;
  OwnAddresses own_addresses_;
  LocalServer* local_ = nullptr;
  Alarm evicted_alarm_;
  Alarm unheard_alarm_;
  Alarm pool_alarm_;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_SERVICE_H_
