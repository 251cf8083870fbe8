// Counters for whoever watches hosts, in the OpenMetrics text format, on a unix socket or a loopback port. A
// few connections at a time, each with a little time: it cannot hold the daemon up.
#ifndef SDP_PORTMAPPER_DAEMON_METRICS_SERVER_H_
#define SDP_PORTMAPPER_DAEMON_METRICS_SERVER_H_

#include <list>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/types.h"
#include "portmapper/daemon/unique_fd.h"

namespace sdp::pm {

class MetricsServer {
 public:
  // "unix:PATH" (0660; a stale socket is replaced), "PORT" (127.0.0.1) or "ADDR:PORT" with an address of the
  // loopback.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<MetricsServer>> Open(const std::string& where);
  // Unlinks its unix socket.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // Readable when HandleReadable has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.get(); }
  // "127.0.0.1:9100" or "unix:PATH".
  [[nodiscard]] const std::string& where() const { return where_; }

  // `metrics` writes the body; it is called when somebody asks.
  void HandleReadable(absl::FunctionRef<std::string()> metrics, Time now);
  void HandleTimeout(Time now);
  [[nodiscard]] Time NextTimeout() const { return clients_.empty() ? kNever : clients_.front().deadline; }

 private:
  struct Client {
    UniqueFd fd;
    Time deadline;
    std::string received;
    std::string answer;  // what is left to send
  };
  using Clients = std::list<Client>;

  MetricsServer() = default;
  void Accept(Time now);
  // False when the client is done with.
  [[nodiscard]] bool Progress(Client& client, absl::FunctionRef<std::string()> metrics);

  UniqueFd epoll_;
  UniqueFd listener_;
  std::string path_;  // of the unix socket
  std::string where_;
  Clients clients_;  // in the order of their deadlines
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_METRICS_SERVER_H_
