// sdp-pmd: the UDP ports, the local registrations, the signals and the state machine behind one epoll loop.
#ifndef SDP_PORTMAPPER_DAEMON_DAEMON_H_
#define SDP_PORTMAPPER_DAEMON_DAEMON_H_

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/types.h"
#include "portmapper/daemon/announcer.h"
#include "portmapper/daemon/local_server.h"
#include "portmapper/daemon/metrics_server.h"
#include "portmapper/daemon/sandbox.h"
#include "portmapper/daemon/service.h"
#include "portmapper/daemon/service_manager.h"
#include "portmapper/daemon/udp_ports.h"
#include "portmapper/daemon/unique_fd.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/admission.h"
#include "portmapper/engine/registry.h"

namespace sdp::pm {

struct DaemonOptions {
  std::vector<Endpoint> listen;  // empty: all addresses, IPv4 and, where the host has it, IPv6, port 3935
  std::string socket_path;
  std::optional<mode_t> socket_mode;  // as in LocalServerOptions
  std::optional<User> user;           // to be once everything is open; empty: stay who we are
  bool restrict_system_calls = true;
  PmTime pm_time{20};
  Duration ack_timeout = std::chrono::seconds(5);
  AdmissionOptions admission;
  std::string registry;                      // a file; empty: none
  Registry serve;                            // what --serve adds to it
  std::string metrics;                       // where MetricsServer is to be; empty: nowhere
  std::vector<AnnouncerOptions> announcers;  // one for each central PMSP
};

class Daemon {
 public:
  // Binds everything and blocks SIGTERM, SIGINT, SIGHUP and SIGUSR1, which Run() takes from then on. The UDP
  // ports come first: who runs twice fails there before it touches the running daemon's socket.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Daemon>> Open(const DaemonOptions& options);

  // "0.0.0.0:3935 [::]:3935, /run/sdp/pmd.sock": where it is reached.
  [[nodiscard]] std::string Describe() const;

  // Serves until SIGTERM or SIGINT. Tells the service manager when it starts.
  [[nodiscard]] absl::Status Run();

 private:
  Daemon(const DaemonOptions& options, const PmServerOptions& server)
      : options_(options), service_(server, options.admission) {}

  absl::Status Watch(int fd);
  absl::Status LoadConfiguration();
  void HandleReadable(int fd, Time now);
  void HandleSignal(Time now);
  void HandleTimeout(Time now);
  absl::Status Confine();
  void Reload(Time now);
  void HandleAnnouncers(Time now);
  [[nodiscard]] int MillisecondsToNextTimeout(Time now) const;
  void Dump() const;

  DaemonOptions options_;
  ServiceManager manager_{secure_getenv};
  Service service_;
  UdpPorts ports_;
  std::unique_ptr<LocalServer> local_;
  std::unique_ptr<MetricsServer> metrics_;
  std::vector<std::unique_ptr<Announcer>> announcers_;
  uint64_t announced_generation_ = 0;
  UniqueFd signals_;
  UniqueFd epoll_;
  bool stop_ = false;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_DAEMON_H_
