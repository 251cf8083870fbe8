// What a service manager wants to hear (systemd's sd_notify protocol): ready, reloading, stopping, alive.
#ifndef SDP_PORTMAPPER_DAEMON_SERVICE_MANAGER_H_
#define SDP_PORTMAPPER_DAEMON_SERVICE_MANAGER_H_

#include <string_view>

#include "core/base/types.h"
#include "portmapper/daemon/unique_fd.h"

namespace sdp::pm {

class ServiceManager {
 public:
  // By NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, as `get_environment` (std::getenv or something like it)
  // knows them. Without the first, nothing is said to anybody.
  explicit ServiceManager(char* (*get_environment)(const char*));

  [[nodiscard]] bool IsThere() const { return static_cast<bool>(fd_); }

  void Ready(std::string_view status);
  // `now` is of the monotonic clock, which the manager compares with its own. Ready() ends it.
  void Reloading(Time now);
  void Stopping();

  // Says that we are alive, when it is time to; twice as often as the manager wants to hear it.
  void HandleTimeout(Time now);
  [[nodiscard]] Time NextTimeout() const { return watchdog_ == Duration::zero() || !fd_ ? kNever : next_; }

 private:
  void Send(std::string_view message) const;

  UniqueFd fd_;
  Duration watchdog_{};  // between two words; 0: not wanted
  Time next_{};
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_SERVICE_MANAGER_H_
