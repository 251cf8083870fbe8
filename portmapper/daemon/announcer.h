// Tells a central PMSP what this host serves, again and again: its heartbeat.
#ifndef SDP_PORTMAPPER_DAEMON_ANNOUNCER_H_
#define SDP_PORTMAPPER_DAEMON_ANNOUNCER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "core/base/types.h"
#include "portmapper/daemon/log.h"
#include "portmapper/daemon/unique_fd.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/registration_table.h"
#include "portmapper/wire/announcement.h"

namespace sdp::pm {

struct AnnouncerOptions {
  Endpoint central;
  std::vector<Endpoint> addresses;  // of this host, for listeners on the wildcard; empty: the one the kernel
                                    // uses towards the PMSP
  uint8_t lifetime = 6;             // seconds; told three times as often
  uint16_t weight = 1;
};

class Announcer {
 public:
  // A central that cannot be reached now is no error: it is tried again with every heartbeat.
  explicit Announcer(const AnnouncerOptions& options);
  // Takes everything back.
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  // Changes when the socket is made anew; -1 while there is none.
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const Endpoint& central() const { return options_.central; }

  // Challenges and refusals of the PMSP.
  void HandleReadable(Time now);
  // Time for a heartbeat, when `now` is NextTimeout() or later: these listeners are here.
  void HandleTimeout(const std::vector<std::pair<RegistrationId, Registration>>& registrations, Time now);
  // The registrations have changed: the next heartbeat comes soon.
  void HandleChange(Time now);
  [[nodiscard]] Time NextTimeout() const { return next_; }

 private:
  using Service = std::pair<Endpoint, Endpoint>;  // conventional, SDP

  void Connect();
  [[nodiscard]] absl::flat_hash_set<Service> ServicesOf(
      const std::vector<std::pair<RegistrationId, Registration>>& registrations) const;
  void Send(const Service& service, uint8_t lifetime);

  AnnouncerOptions options_;
  UniqueFd fd_;
  Endpoint source_;
  uint64_t cookie_ = 0;
  Time next_{};
  absl::flat_hash_set<Service> announced_;
  bool send_failed_ = false;
  LogLimiter refused_limiter_{1, std::chrono::minutes(1)};
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_ANNOUNCER_H_
