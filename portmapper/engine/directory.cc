#include "portmapper/engine/directory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "portmapper/engine/siphash.h"

namespace sdp::pm {

void Directory::Configure(Registry registry) {
  registry_ = std::move(registry);
  host_of_address_.clear();
  for (size_t i = 0; i < registry_.hosts.size(); ++i) {
    for (const Endpoint& address : registry_.hosts[i]) host_of_address_.try_emplace(address, i);
  }
  auto before = std::exchange(pools_, {});
  pools_of_host_.clear();
  for (const auto& [service, backends] : registry_.services) {
    for (const Backend& backend : backends) {
      if (!backend.IsPool()) continue;
      const PoolKey key{backend.address, backend.last_port};
      const auto [place, fresh] = pools_.try_emplace(key);
      if (!fresh) continue;  // two services share it
      const auto kept = before.find(key);
      if (kept != before.end()) {
        place->second = std::move(kept->second);
      } else {
        place->second = {backend.address.port, 0,
                         std::vector<Time>(size_t{backend.last_port} - backend.address.port + 1)};
      }
      pools_of_host_[HostOf(backend.address)].push_back(key);
    }
  }
  // What a host may no longer say is not held for it either.
  AnnouncementTable still_theirs;
  for (const auto& [conventional, entries] : announcements_.all()) {
    for (const Announced& entry : entries) {
      Announcement again;
      again.lifetime = UINT8_MAX;
      again.conventional = conventional;
      again.sdp = entry.sdp;
      again.weight = entry.weight;
      const Time made = entry.expires - std::chrono::seconds(again.lifetime);
      if (MayAnnounce(entry.source, again)) (void)still_theirs.Put(again, entry.source, made);
    }
  }
  announcements_ = std::move(still_theirs);
}

bool Directory::Serves(const Endpoint& host) const {
  return std::any_of(registry_.serve.begin(), registry_.serve.end(),
                     [&](const Prefix& p) { return p.Contains(host); });
}

PmTime Directory::PmTimeFor(const Endpoint& asked, PmTime otherwise) const {
  for (const PmTimeRule& rule : registry_.pm_times) {
    if (rule.services.Contains(asked)) return rule.pm_time;
  }
  return otherwise;
}

bool Directory::Allows(const Endpoint& source, const Endpoint& asked) {
  for (const AccessRule& rule : registry_.access) {
    if (!rule.from.Contains(source) || !rule.to.Contains(asked)) continue;
    if (!rule.allow) ++counters_.denied_by_access;
    return rule.allow;
  }
  return true;
}

bool Directory::IsConfigured(const Endpoint& asked) const {
  if (!registry_.services.empty() && registry_.services.contains(NormalizeMapped(asked))) return true;
  return FindHostBalance(asked) != nullptr;
}

const HostBalance* Directory::FindHostBalance(const Endpoint& asked) const {
  for (const HostBalance& balance : registry_.host_balances) {
    if (balance.asked.Contains(asked) && balance.over.address.version == NormalizeMapped(asked).version)
      return &balance;
  }
  return nullptr;
}

std::vector<Backend> Directory::BackendsOf(const Endpoint& asked) const {
  const Endpoint service = NormalizeMapped(asked);
  const auto found = registry_.services.find(service);
  if (found != registry_.services.end()) return found->second;
  std::vector<Backend> backends;
  const HostBalance* const first = FindHostBalance(asked);
  if (first == nullptr) return backends;
  for (const HostBalance& balance : registry_.host_balances) {
    if (!(balance.asked == first->asked) || balance.over.address.version != service.version) continue;
    Backend& backend = backends.emplace_back(balance.over);
    backend.address.port = backend.last_port = service.port;
  }
  return backends;
}

std::optional<Endpoint> Directory::FindConfigured(const Endpoint& asked, uint64_t spread,
                                                  const std::optional<Endpoint>& prior, FindLocal local,
                                                  Time now) {
  const std::vector<Backend> backends = BackendsOf(asked);
  std::vector<const Backend*> left;
  for (const Backend& backend : backends) left.push_back(&backend);
  std::stable_sort(left.begin(), left.end(),
                   [](const auto* a, const auto* b) { return a->priority < b->priority; });

  const uint8_t best = left.empty() ? 0 : left.front()->priority;
  // The best priority first; within it by weight among those not tried yet.
  while (!left.empty()) {
    std::vector<uint16_t> weights;
    for (const Backend* backend : left) {
      if (backend->priority != left.front()->priority) break;
      weights.push_back(backend->weight);
    }
    const size_t pick = PickByWeight(weights, spread);
    const Backend& backend = *left[pick];
    if (const auto sdp = Try(backend, spread, prior, local, now)) {
      if (backend.priority != best) ++counters_.failovers;
      return asked.version == IpVersion::kV6 ? ToMapped(*sdp) : *sdp;
    }
    left.erase(left.begin() + static_cast<ptrdiff_t>(pick));
  }
  return std::nullopt;
}

std::optional<Endpoint> Directory::Try(const Backend& backend, uint64_t spread,
                                       const std::optional<Endpoint>& prior, FindLocal local, Time now) {
  if (backend.kind == BackendKind::kSdpAddress) {
    return backend.IsPool() ? Lease(backend, prior, now) : std::optional(backend.address);
  }
  if (const auto here = local(backend.address)) return NormalizeMapped(*here);
  return announcements_.Find(backend.address, spread, now);
}

std::optional<Endpoint> Directory::Lease(const Backend& backend, const std::optional<Endpoint>& prior,
                                         Time now) {
  Pool& pool = pools_.find({backend.address, backend.last_port})->second;
  const auto lease = [&](size_t offset) {
    pool.free_at[offset] = now + ack_timeout_;
    Endpoint sdp = backend.address;
    sdp.port = static_cast<uint16_t>(pool.first + offset);
    return sdp;
  };
  if (prior) {
    const Endpoint before = NormalizeMapped(*prior);
    if (HostOf(before) == HostOf(backend.address) && before.port >= pool.first &&
        before.port <= backend.last_port) {
      return lease(size_t{before.port} - pool.first);
    }
  }
  for (size_t i = 0; i < pool.free_at.size(); ++i) {
    const size_t offset = (pool.next + i) % pool.free_at.size();
    if (pool.free_at[offset] > now) continue;
    pool.next = static_cast<uint16_t>((offset + 1) % pool.free_at.size());
    return lease(offset);
  }
  ++counters_.pool_exhausted;
  return std::nullopt;
}

void Directory::HandleAck(const Endpoint& sdp) {
  if (pools_of_host_.empty()) return;
  const Endpoint address = NormalizeMapped(sdp);
  const auto found = pools_of_host_.find(HostOf(address));
  if (found == pools_of_host_.end()) return;
  for (const PoolKey& key : found->second) {
    Pool& pool = pools_.find(key)->second;
    if (address.port >= pool.first && address.port <= key.second)
      pool.free_at[size_t{address.port} - pool.first] = {};
  }
}

std::optional<Datagram> Directory::HandleAnnouncement(const Announcement& announcement,
                                                      const Endpoint& source, Time now) {
  if (announcement.type != AnnouncementType::kAnnounce || !IsCentral()) return std::nullopt;
  Announcement reply = announcement;
  const uint64_t cookie = CookieFor(source);
  if (announcement.cookie != cookie) {
    // Only who can be reached at his address learns it.
    ++counters_.challenged;
    reply.type = AnnouncementType::kChallenge;
    reply.cookie = cookie;
    return Serialize(reply);
  }
  if (MayAnnounce(source, announcement) && announcements_.Put(announcement, source, now)) {
    ++counters_.announcements;
    return std::nullopt;
  }
  ++counters_.refused;
  reply.type = AnnouncementType::kRefuse;
  return Serialize(reply);
}

// A host speaks for itself, and nobody can be sent to a host that has not asked for it.
bool Directory::MayAnnounce(const Endpoint& source, const Announcement& announcement) const {
  return Serves(announcement.conventional) && SameHost(source, announcement.conventional) &&
         SameHost(source, announcement.sdp);
}

bool Directory::SameHost(const Endpoint& a, const Endpoint& b) const {
  const Endpoint x = HostOf(NormalizeMapped(a));
  const Endpoint y = HostOf(NormalizeMapped(b));
  if (x == y) return true;
  const auto of_x = host_of_address_.find(x);
  const auto of_y = host_of_address_.find(y);
  return of_x != host_of_address_.end() && of_y != host_of_address_.end() && of_x->second == of_y->second;
}

uint64_t Directory::CookieFor(const Endpoint& source) const {
  const Endpoint address = NormalizeMapped(source);
  std::array<std::byte, 19> bytes;
  std::memcpy(bytes.data(), address.address.data(), 16);
  bytes[16] = static_cast<std::byte>(address.version);
  bytes[17] = static_cast<std::byte>(address.port >> 8);
  bytes[18] = static_cast<std::byte>(address.port & 0xff);
  return SipHash(bytes, key_);
}

}  // namespace sdp::pm
