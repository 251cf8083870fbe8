// What a process remembers of the answers it got: SDP addresses for as long as PmTime allows, denials for a
// moment, and hosts without a port mapper (or a central one that is gone) for a minute. Bounded, no clock;
// the owner locks.
#ifndef SDP_PORTMAPPER_ENGINE_PM_CACHE_H_
#define SDP_PORTMAPPER_ENGINE_PM_CACHE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/pm_client.h"

namespace sdp::pm {

struct PmCacheOptions {
  size_t max_targets = 1024;  // answers kept, positive and denied together
  size_t max_hosts = 1024;    // hosts without a port mapper kept
  Duration host_negative =
      std::chrono::seconds(60);  // after kSilent and kUnreachable, per host; 0 keeps nothing
  Duration target_negative = std::chrono::seconds(1);  // after kDenied, per target; 0 keeps nothing
  std::optional<Endpoint> server = std::nullopt;       // a central port mapper that is asked about all hosts
};

// What the cache says of a target. The state is never kAsking; kAccepted has the SDP address.
struct CachedAnswer {
  QueryState state;
  Endpoint sdp_address;
  Time expires = kNever;
  Duration round_trip{};  // the port mapper's, when it gave the answer; zero: not measured
};

class PmCache {
 public:
  explicit PmCache(const PmCacheOptions& options = {}) : options_(options) {}

  // Empty: nothing known, ask. An entry is flushed when its time has come (SDP 7.3.1.4: MUST).
  [[nodiscard]] std::optional<CachedAnswer> Lookup(const Endpoint& target, Time now);

  // Remembers how a query ended, `now` being when its reply came. An accepted query with PmTime 0 is not
  // kept. Any reply, denial included, clears what was held against the host.
  void Record(const PmClient& client, Time now);

  // The remembered SDP address answered with a reset: as good as a PMDeny (SDP 7.5.1), so the target counts
  // as denied for target_negative.
  void RecordReset(const Endpoint& target, Time now);

  // Drops what is known of the target and of its host.
  void Forget(const Endpoint& target);

  [[nodiscard]] size_t targets() const { return targets_.size(); }
  [[nodiscard]] size_t hosts() const { return hosts_.size(); }
  [[nodiscard]] bool IsConsistent() const;

 private:
  using Table = std::unordered_map<Endpoint, CachedAnswer>;

  // Whose silence keeps a target's query from being asked.
  [[nodiscard]] Endpoint MapperOf(const Endpoint& target) const {
    return HostOf(options_.server ? *options_.server : target);
  }
  void Put(Table& table, size_t bound, const Endpoint& key, const CachedAnswer& answer, Time now);

  PmCacheOptions options_;
  Table targets_;
  Table hosts_;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_PM_CACHE_H_
