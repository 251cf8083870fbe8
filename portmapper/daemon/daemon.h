// sdp-pmd: the UDP ports, the local registrations, the signals and the state machine behind one epoll loop.
#ifndef SDP_PORTMAPPER_DAEMON_DAEMON_H_
#define SDP_PORTMAPPER_DAEMON_DAEMON_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/types.h"
#include "portmapper/daemon/local_server.h"
#include "portmapper/daemon/log.h"
#include "portmapper/daemon/udp_port.h"
#include "portmapper/daemon/unique_fd.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/admission.h"
#include "portmapper/engine/pm_server.h"

namespace sdp::pm {

struct DaemonOptions {
  std::vector<Endpoint> listen;  // empty: all addresses, IPv4 and, where the host has it, IPv6, port 3935
  std::string socket_path;
  std::optional<mode_t> socket_mode;  // as in LocalServerOptions
  PmTime pm_time{20};
  AdmissionOptions admission;
};

class Daemon {
 public:
  // Binds everything and blocks SIGTERM, SIGINT and SIGUSR1, which Run() takes from then on. The UDP ports
  // come first: who runs twice fails there before it touches the running daemon's socket.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Daemon>> Open(const DaemonOptions& options);

  // "0.0.0.0:3935 [::]:3935, /run/sdp/pmd.sock": where it is reached.
  [[nodiscard]] std::string Describe() const;

  // Serves until SIGTERM or SIGINT.
  [[nodiscard]] absl::Status Run();

 private:
  Daemon(const PmServerOptions& server, const AdmissionOptions& admission)
      : server_(server), admission_(admission, server.hash_key) {}

  absl::Status OpenPorts(const DaemonOptions& options);
  absl::Status Watch(int fd);
  void HandleReadable(int fd, Time now);
  void HandleSignal();
  void HandleTimeout(Time now);
  void MaybeWarnOfFlood(Time now);
  [[nodiscard]] int MillisecondsToNextTimeout(Time now) const;
  std::optional<Datagram> Serve(Bytes datagram, const Endpoint& source, Time now);
  std::optional<PmAnswer> AnswerTo(const PmMessage& request, Time now);
  void Dump() const;

  PmServer server_;
  Admission admission_;
  std::vector<UdpPort> ports_;
  std::unique_ptr<LocalServer> local_;
  UniqueFd signals_;
  UniqueFd epoll_;
  std::string socket_path_;
  bool stop_ = false;
  // What the last warning has told already.
  uint64_t evicted_reported_ = 0;
  uint64_t unheard_reported_ = 0;
  LogLimiter eviction_limiter_{1, std::chrono::minutes(1)};
  LogLimiter flood_limiter_{1, std::chrono::minutes(1)};
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_DAEMON_H_
