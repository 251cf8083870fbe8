#include "portmapper/engine/registration_table.h"

#include <algorithm>

#include "core/base/check.h"

namespace sdp::pm {

RegistrationId RegistrationTable::Add(const Registration& registration) {
  SDP_CHECK(registration.conventional.port != 0 && registration.sdp.port != 0);
  const RegistrationId id(next_id_++);
  Registration normalized = registration;
  normalized.conventional = NormalizeMapped(registration.conventional);
  normalized.sdp = NormalizeMapped(registration.sdp);
  by_conventional_[normalized.conventional].emplace_back(id, normalized);
  by_id_.emplace(id, normalized);
  ++generation_;
  SDP_DCHECK(IsConsistent());
  return id;
}

bool RegistrationTable::Remove(RegistrationId id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  const auto bucket = by_conventional_.find(found->second.conventional);
  std::erase_if(bucket->second, [id](const Entry& entry) { return entry.first == id; });
  if (bucket->second.empty()) by_conventional_.erase(bucket);
  by_id_.erase(found);
  ++generation_;
  SDP_DCHECK(IsConsistent());
  return true;
}

std::optional<RegistrationId> RegistrationTable::Find(const Endpoint& asked, uint64_t spread) const {
  const Endpoint address = NormalizeMapped(asked);
  if (address.IsWildcard() || address.IsMulticastOrBroadcast()) return std::nullopt;
  const bool v4 = address.version == IpVersion::kV4;
  if (auto exact = Pick(address, address, spread)) return exact;
  if (auto wildcard = Pick({address.version, {}, address.port}, address, spread)) return wildcard;
  return v4 ? Pick({IpVersion::kV6, {}, address.port}, address, spread) : std::nullopt;
}

std::optional<RegistrationId> RegistrationTable::Pick(const Endpoint& conventional, const Endpoint& asked,
                                                      uint64_t spread) const {
  const auto bucket = by_conventional_.find(conventional);
  if (bucket == by_conventional_.end()) return std::nullopt;
  const std::vector<Entry>& entries = bucket->second;
  // An IPv4 client is served by [::] only where that socket is dual-stack.
  const bool needs_dual = asked.version == IpVersion::kV4 && conventional.version == IpVersion::kV6;
  for (const bool of_rnic : {true, false}) {
    const auto serves = [&](const Entry& entry) {
      const Registration& registration = entry.second;
      return registration.of_rnic == of_rnic && !(needs_dual && registration.v6_only) &&
             (!of_rnic || HostOf(registration.sdp) == HostOf(asked));
    };
    auto left = static_cast<uint64_t>(std::count_if(entries.begin(), entries.end(), serves));
    if (left == 0) continue;
    left = spread % left;
    for (const Entry& entry : entries) {
      if (serves(entry) && left-- == 0) return entry.first;
    }
  }
  return std::nullopt;
}

const Registration& RegistrationTable::Get(RegistrationId id) const {
  const auto found = by_id_.find(id);
  SDP_CHECK(found != by_id_.end());
  return found->second;
}

std::optional<Endpoint> RegistrationTable::SdpAddressFor(const Registration& registration,
                                                         const Endpoint& asked) {
  const Endpoint& sdp = registration.sdp;
  const bool wants_v4 = NormalizeMapped(asked).version == IpVersion::kV4;
  const bool serves_v4 = sdp.version == IpVersion::kV4 || (sdp.IsWildcard() && !registration.v6_only);
  const bool serves_v6 = sdp.version == IpVersion::kV6;
  if (wants_v4 ? !serves_v4 : !serves_v6) return std::nullopt;
  if (sdp.IsWildcard()) return Endpoint{asked.version, asked.address, sdp.port};
  return asked.version == IpVersion::kV6 ? ToMapped(sdp) : sdp;
}

std::vector<std::pair<RegistrationId, Registration>> RegistrationTable::List() const {
  std::vector<std::pair<RegistrationId, Registration>> list(by_id_.begin(), by_id_.end());
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return list;
}

bool RegistrationTable::IsConsistent() const {
  size_t indexed = 0;
  for (const auto& [conventional, entries] : by_conventional_) {
    if (entries.empty()) return false;
    indexed += entries.size();
    for (const auto& [id, registration] : entries) {
      const auto found = by_id_.find(id);
      if (found == by_id_.end() || found->second != registration || registration.conventional != conventional)
        return false;
    }
  }
  return indexed == by_id_.size();
}

}  // namespace sdp::pm
