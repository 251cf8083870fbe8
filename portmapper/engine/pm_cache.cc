#include "portmapper/engine/pm_cache.h"

#include <algorithm>

namespace sdp::pm {
namespace {

// "Forever" does not fit onto the clock.
Time Expiry(Time now, Duration lifetime) { return lifetime >= kNever - now ? kNever : now + lifetime; }

}  // namespace

std::optional<CachedAnswer> PmCache::Lookup(const Endpoint& target, Time now) {
  for (Table* table : {&targets_, &hosts_}) {
    const auto found = table->find(table == &targets_ ? target : MapperOf(target));
    if (found == table->end()) continue;
    if (now < found->second.expires) return found->second;
    table->erase(found);
  }
  return std::nullopt;
}

void PmCache::Record(const PmClient& client, Time now) {
  const Endpoint& target = client.query().target;
  switch (client.state()) {
    case QueryState::kAsking:
      break;
    case QueryState::kAccepted:
      hosts_.erase(MapperOf(target));
      Put(targets_, options_.max_targets, target,
          {QueryState::kAccepted, client.sdp_address(), Expiry(now, client.cache_time()),
           client.round_trip()},
          now);
      break;
    case QueryState::kDenied:
      hosts_.erase(MapperOf(target));
      Put(targets_, options_.max_targets, target,
          {QueryState::kDenied, {}, Expiry(now, options_.target_negative)}, now);
      break;
    case QueryState::kSilent:
    case QueryState::kUnreachable:
      Put(hosts_, options_.max_hosts, MapperOf(target),
          {client.state(), {}, Expiry(now, options_.host_negative)}, now);
      break;
  }
}

void PmCache::RecordReset(const Endpoint& target, Time now) {
  Put(targets_, options_.max_targets, target,
      {QueryState::kDenied, {}, Expiry(now, options_.target_negative)}, now);
}

void PmCache::Forget(const Endpoint& target) {
  targets_.erase(target);
  hosts_.erase(MapperOf(target));
}

void PmCache::Put(Table& table, size_t bound, const Endpoint& key, const CachedAnswer& answer, Time now) {
  // What is known by now replaces what was known before, also when it is not to be kept (PmTime 0: MUST NOT
  // cache).
  table.erase(key);
  if (answer.expires <= now || bound == 0) return;
  if (table.size() >= bound)
    std::erase_if(table, [&](const auto& entry) { return entry.second.expires <= now; });
  if (table.size() >= bound) {
    table.erase(std::min_element(table.begin(), table.end(), [](const auto& a, const auto& b) {
      return a.second.expires < b.second.expires;
    }));
  }
  table.emplace(key, answer);
}

bool PmCache::IsConsistent() const {
  const auto is_target = [](const auto& entry) {
    return entry.second.state == QueryState::kAccepted || entry.second.state == QueryState::kDenied;
  };
  const auto is_host = [](const auto& entry) {
    return entry.first.port == 0 &&
           (entry.second.state == QueryState::kSilent || entry.second.state == QueryState::kUnreachable);
  };
  return targets_.size() <= options_.max_targets && hosts_.size() <= options_.max_hosts &&
         std::all_of(targets_.begin(), targets_.end(), is_target) &&
         std::all_of(hosts_.begin(), hosts_.end(), is_host);
}

}  // namespace sdp::pm
