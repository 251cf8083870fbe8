// What other hosts have announced to this PMSP, each until its lifetime is over: a host that says nothing any
// more is a host that serves nothing any more. Bounded; no I/O, no clock.
#ifndef SDP_PORTMAPPER_ENGINE_ANNOUNCEMENT_TABLE_H_
#define SDP_PORTMAPPER_ENGINE_ANNOUNCEMENT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "portmapper/wire/announcement.h"

namespace sdp::pm {

struct Announced {
  Endpoint sdp;
  uint16_t weight = 1;
  Time expires{};
  Endpoint source;  // of the announcement; port 0
};

class AnnouncementTable {
 public:
  explicit AnnouncementTable(size_t capacity = 65536, size_t capacity_per_source = 4096)
      : capacity_(capacity), capacity_per_source_(capacity_per_source) {}

  // Stores or renews; lifetime 0 removes. False if a bound is reached.
  [[nodiscard]] bool Put(const Announcement& announcement, const Endpoint& source, Time now);

  // Where `conventional` is served now. Of several, `spread` picks one in proportion to their weights, the
  // same for the same set; those of weight 0 only when there is no other.
  [[nodiscard]] std::optional<Endpoint> Find(const Endpoint& conventional, uint64_t spread, Time now) const;

  // Frees what has its time at or before `now`; returns how many. Looks at everything, a second apart at
  // least.
  size_t RemoveExpired(Time now);
  [[nodiscard]] Time NextTimeout() const { return size_ == 0 ? kNever : next_sweep_; }

  // Not all of them need be alive still.
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] const absl::flat_hash_map<Endpoint, std::vector<Announced>>& all() const {
    return by_conventional_;
  }
  [[nodiscard]] bool IsConsistent() const;

 private:
  void Forget(const Endpoint& source);

  size_t capacity_;
  size_t capacity_per_source_;
  size_t size_ = 0;
  Time next_sweep_{};
  absl::flat_hash_map<Endpoint, std::vector<Announced>> by_conventional_;  // no empty vectors
  absl::flat_hash_map<Endpoint, size_t> per_source_;                       // no zeros
};

// Spreads clients over `weights` (not empty): the index that `spread` picks.
[[nodiscard]] size_t PickByWeight(const std::vector<uint16_t>& weights, uint64_t spread);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_ANNOUNCEMENT_TABLE_H_
