// Finds where a conventional address is reachable by SDP: the process's cache, which has a lock of its own,
// and the query to the target's port mapper.
#ifndef SDP_PRELOAD_SOCKET_PM_LOOKUP_H_
#define SDP_PRELOAD_SOCKET_PM_LOOKUP_H_

#include <memory>
#include <optional>

#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/pm_cache.h"
#include "portmapper/engine/pm_client.h"
#include "portmapper/engine/silent_ports.h"

namespace sdp::preload {

// Returns what the process remembers of `target`.
std::optional<pm::CachedAnswer> LookupCached(const pm::Endpoint& target, Time now);
// The SDP address answered with a reset, or with something that is not SDP.
void RememberReset(const pm::Endpoint& target, Time now);
// Forgets the target: a remembered SDP address turned out to be stale.
void ForgetTarget(const pm::Endpoint& target);

// Returns what the process remembers of an SDP address that did not answer
// (portmapper/engine/silent_ports.h); nothing if it may be tried.
std::optional<pm::Silence> LookupSilence(const pm::Endpoint& sdp_address, Time now);
pm::Silence RememberSilence(const pm::Endpoint& sdp_address, Time now);
void RememberAnswer(const pm::Endpoint& sdp_address);

// One query in progress: owns its UDP socket. Never blocks.
class PmLookup {
 public:
  // `tcp_fd` is the socket that will connect. It is bound to its local address and port, which the query
  // names (SDP 7.4, CpPort). `limit`: how long the port mapper may be silent. Silences of one host are
  // remembered once they make up the configured time. Returns null if the query cannot even start (no route,
  // no descriptor): then there is no SDP.
  static std::unique_ptr<PmLookup> Start(int tcp_fd, int domain, const pm::Endpoint& target,
                                         uint32_t scope_id, Duration limit, Time now);
  ~PmLookup();

  // Returns kAsking until the query is decided. Then the outcome is in the cache too.
  pm::QueryState Step(Time now);
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] Time deadline() const { return client_->NextTimeout(); }
  [[nodiscard]] const pm::Endpoint& sdp_address() const { return client_->sdp_address(); }
  [[nodiscard]] Duration round_trip() const { return client_->round_trip(); }

 private:
  PmLookup() = default;
  int fd_ = -1;
  Duration limit_{};
  std::unique_ptr<pm::PmClient> client_;
};

// In the child of a fork: the source of association handles must not repeat the parent's. The copy of the
// cache stays.
void ForgetPmAfterFork();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_PM_LOOKUP_H_
