#include "portmapper/engine/announcement_table.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/base/check.h"
#include "portmapper/engine/keyed_hash.h"

namespace sdp::pm {
namespace {

constexpr Duration kSweepInterval = std::chrono::seconds(1);

}  // namespace

size_t PickByWeight(const std::vector<uint16_t>& weights, uint64_t spread) {
  SDP_CHECK(!weights.empty());
  const uint64_t total = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  // The handles of one client may count: near ones must not meet in one place.
  const uint64_t mixed = Fold(spread ^ 0x9E3779B97F4A7C15u, 0xBF58476D1CE4E5B9u);
  if (total == 0) return mixed % weights.size();
  uint64_t left = mixed % total;
  for (size_t i = 0;; ++i) {
    if (left < weights[i]) return i;
    left -= weights[i];
  }
}

bool AnnouncementTable::Put(const Announcement& announcement, const Endpoint& source, Time now) {
  const Endpoint conventional = NormalizeMapped(announcement.conventional);
  const Announced entry{NormalizeMapped(announcement.sdp), announcement.weight,
                        now + std::chrono::seconds(announcement.lifetime), HostOf(NormalizeMapped(source))};
  const auto found = by_conventional_.find(conventional);
  if (found != by_conventional_.end()) {
    auto& entries = found->second;
    const auto same = std::find_if(entries.begin(), entries.end(), [&](const Announced& e) {
      return e.sdp == entry.sdp && e.source == entry.source;
    });
    if (same != entries.end() && announcement.lifetime != 0) {
      *same = entry;
      return true;
    }
    if (same != entries.end()) {
      entries.erase(same);
      if (entries.empty()) by_conventional_.erase(found);
      Forget(entry.source);
      return true;
    }
  }
  if (announcement.lifetime == 0) return true;
  size_t& of_source = per_source_[entry.source];
  if (size_ >= capacity_ || of_source >= capacity_per_source_) {
    if (of_source == 0) per_source_.erase(entry.source);
    return false;
  }
  if (size_ == 0) next_sweep_ = now + kSweepInterval;
  ++of_source;
  ++size_;
  by_conventional_[conventional].push_back(entry);
  SDP_DCHECK(IsConsistent());
  return true;
}

std::optional<Endpoint> AnnouncementTable::Find(const Endpoint& conventional, uint64_t spread,
                                                Time now) const {
  const auto found = by_conventional_.find(NormalizeMapped(conventional));
  if (found == by_conventional_.end()) return std::nullopt;
  std::vector<uint16_t> weights;
  std::vector<const Announced*> alive;
  for (const Announced& entry : found->second) {
    if (entry.expires <= now) continue;
    weights.push_back(entry.weight);
    alive.push_back(&entry);
  }
  if (alive.empty()) return std::nullopt;
  return alive[PickByWeight(weights, spread)]->sdp;
}

size_t AnnouncementTable::RemoveExpired(Time now) {
  if (size_ == 0 || now < next_sweep_) return 0;
  next_sweep_ = now + kSweepInterval;
  const size_t before = size_;
  for (auto i = by_conventional_.begin(); i != by_conventional_.end();) {
    std::erase_if(i->second, [&](const Announced& entry) {
      if (entry.expires > now) return false;
      Forget(entry.source);
      return true;
    });
    const auto here = i++;
    if (here->second.empty()) by_conventional_.erase(here);
  }
  SDP_DCHECK(IsConsistent());
  return before - size_;
}

void AnnouncementTable::Forget(const Endpoint& source) {
  --size_;
  const auto found = per_source_.find(source);
  if (--found->second == 0) per_source_.erase(found);
}

bool AnnouncementTable::IsConsistent() const {
  size_t count = 0;
  absl::flat_hash_map<Endpoint, size_t> sources;
  for (const auto& [conventional, entries] : by_conventional_) {
    if (entries.empty()) return false;
    count += entries.size();
    for (const Announced& entry : entries) ++sources[entry.source];
  }
  return count == size_ && size_ <= capacity_ && sources == per_source_;
}

}  // namespace sdp::pm
