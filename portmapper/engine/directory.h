// The central side of a PMSP: the registry an administrator wrote, what other hosts announce, and the pools
// of ports; from these the answers about hosts and services that are not this host's own (SDP 7.2:
// centralized service, load balancing, failover). No I/O, no clock.
#ifndef SDP_PORTMAPPER_ENGINE_DIRECTORY_H_
#define SDP_PORTMAPPER_ENGINE_DIRECTORY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "core/base/types.h"
#include "portmapper/engine/announcement_table.h"
#include "portmapper/engine/keyed_hash.h"
#include "portmapper/engine/registry.h"
#include "portmapper/wire/announcement.h"

namespace sdp::pm {

struct DirectoryCounters {
  uint64_t denied_by_access = 0;
  uint64_t pool_exhausted = 0;  // PMReqs no port of a pool was free for
  uint64_t failovers = 0;       // PMReqs for which a better priority had nothing alive
  uint64_t announcements = 0;   // accepted, renewals and withdrawals included
  uint64_t challenged = 0;      // announcements without their cookie
  uint64_t refused = 0;         // announcements by somebody who may not, or beyond the bounds
  uint64_t expired = 0;         // announcements that were not renewed
};

class Directory {
 public:
  // `key` makes the cookies: random. A lease of a pool's port ends with its PMAck, or after `ack_timeout`.
  Directory(const HashKey& key, Duration ack_timeout) : key_(key), ack_timeout_(ack_timeout) {}

  // Takes the place of what was configured before. What hosts announced stays as far as it is still theirs to
  // say; ports of pools that are still there stay leased.
  void Configure(Registry registry);

  // -- getters
  [[nodiscard]] const Registry& registry() const { return registry_; }
  [[nodiscard]] const DirectoryCounters& counters() const { return counters_; }
  [[nodiscard]] const AnnouncementTable& announcements() const { return announcements_; }
  // Whether hosts may announce to this PMSP at all.
  [[nodiscard]] bool IsCentral() const { return !registry_.serve.empty(); }
  // Whether this PMSP answers for that host from its announcements.
  [[nodiscard]] bool Serves(const Endpoint& host) const;
  [[nodiscard]] PmTime PmTimeFor(const Endpoint& asked, PmTime otherwise) const;

  // -- inputs
  // Whether `source` may ask for `asked`.
  [[nodiscard]] bool Allows(const Endpoint& source, const Endpoint& asked);

  // Whether the registry says where `asked` is; if so, it alone decides.
  [[nodiscard]] bool IsConfigured(const Endpoint& asked) const;
  // For a configured service, the SDP address to answer with, if there is one. `spread` (the AssocHandle)
  // picks among several. `prior` is what a duplicate was answered with before: a leased port stays its
  // client's. `local` says where a service of this host itself is.
  using FindLocal = absl::FunctionRef<std::optional<Endpoint>(const Endpoint& service)>;
  [[nodiscard]] std::optional<Endpoint> FindConfigured(const Endpoint& asked, uint64_t spread,
                                                       const std::optional<Endpoint>& prior, FindLocal local,
                                                       Time now);
  // For a host that is served, what it announced.
  [[nodiscard]] std::optional<Endpoint> FindAnnounced(const Endpoint& asked, uint64_t spread,
                                                      Time now) const {
    return announcements_.Find(asked, spread, now);
  }

  // A PMAck that ended a transaction about this SDP address: its port is free for the next client.
  void HandleAck(const Endpoint& sdp);
  // Returns the answer, if it has one.
  [[nodiscard]] std::optional<Datagram> HandleAnnouncement(const Announcement& announcement,
                                                           const Endpoint& source, Time now);
  void HandleTimeout(Time now) { counters_.expired += announcements_.RemoveExpired(now); }

  // -- outputs
  [[nodiscard]] Time NextTimeout() const { return announcements_.NextTimeout(); }

 private:
  // The ports of one pool, by the time each is free again.
  struct Pool {
    uint16_t first = 0;
    uint16_t next = 0;  // offset where the search begins: the port freed longest ago, roughly
    std::vector<Time> free_at;
  };
  using PoolKey = std::pair<Endpoint, uint16_t>;  // first port, last port

  // The line that decides about a service that does not stand in the registry itself; null if none does.
  [[nodiscard]] const HostBalance* FindHostBalance(const Endpoint& asked) const;
  // Where a configured service may be.
  [[nodiscard]] std::vector<Backend> BackendsOf(const Endpoint& asked) const;
  [[nodiscard]] std::optional<Endpoint> Try(const Backend& backend, uint64_t spread,
                                            const std::optional<Endpoint>& prior, FindLocal local, Time now);
  [[nodiscard]] std::optional<Endpoint> Lease(const Backend& backend, const std::optional<Endpoint>& prior,
                                              Time now);
  [[nodiscard]] bool MayAnnounce(const Endpoint& source, const Announcement& announcement) const;
  [[nodiscard]] bool SameHost(const Endpoint& a, const Endpoint& b) const;
  [[nodiscard]] uint64_t CookieFor(const Endpoint& source) const;

  HashKey key_;
  Duration ack_timeout_;
  Registry registry_;
  AnnouncementTable announcements_;
  absl::flat_hash_map<PoolKey, Pool> pools_;
  absl::flat_hash_map<Endpoint, std::vector<PoolKey>> pools_of_host_;
  absl::flat_hash_map<Endpoint, size_t> host_of_address_;
  DirectoryCounters counters_;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_DIRECTORY_H_
