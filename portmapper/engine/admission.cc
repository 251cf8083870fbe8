#include "portmapper/engine/admission.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

namespace sdp::pm {
namespace {

constexpr uint16_t kFirstUnprivilegedPort = 1024;
constexpr uint32_t kSmallestBurst = 64;

// The IPv4 address, or the network part of the IPv6 address: a host has all of its /64 to choose from.
uint64_t PrefixOf(const Endpoint& source) {
  uint64_t prefix = 0;
  std::memcpy(&prefix, source.address.data(), sizeof prefix);
  // An IPv4 address leaves the second half zero; no IPv6 network is told by its version alone.
  return source.version == IpVersion::kV4 ? prefix : ~prefix;
}

}  // namespace

bool TokenBucket::Take(Duration interval, Duration burst, Time now) {
  const Time start = std::max(full_at_, now);
  if (start + interval - now > burst) return false;
  full_at_ = start + interval;
  return true;
}

Admission::Rate Admission::ToRate(uint32_t per_second) {
  if (per_second == 0) return {};
  const Duration interval = std::max<Duration>(Duration(std::chrono::seconds(1)) / per_second, Duration(1));
  return {interval, interval * std::max(per_second / 2, kSmallestBurst)};
}

Admission::Admission(const AdmissionOptions& options, const HashKey& key)
    : key_(key), sets_(std::bit_ceil(std::max<size_t>(options.sources / kWays, 1))) {
  Reconfigure(options);
}

void Admission::Reconfigure(const AdmissionOptions& options) {
  source_rate_ = ToRate(options.source_rate);
  total_rate_ = ToRate(options.total_rate);
  privileged_ports_ = options.privileged_ports;
}

Verdict Admission::Judge(const Endpoint& source, Time now) {
  if (source.port < kFirstUnprivilegedPort && !privileged_ports_) {
    ++counters_.privileged_port;
    return Verdict::kPrivilegedPort;
  }
  if (source_rate_.interval != Duration::zero() &&
      !SourceOf(source).bucket.Take(source_rate_.interval, source_rate_.burst, now)) {
    ++counters_.source_limit;
    return Verdict::kSourceLimit;
  }
  if (total_rate_.interval != Duration::zero() &&
      !total_.Take(total_rate_.interval, total_rate_.burst, now)) {
    ++counters_.total_limit;
    return Verdict::kTotalLimit;
  }
  return Verdict::kHear;
}

Admission::Source& Admission::SourceOf(const Endpoint& source) {
  const Endpoint address = NormalizeMapped(source);
  const uint64_t prefix = PrefixOf(address);
  Set& set = sets_[Fold(prefix ^ key_[0], key_[1]) & (sets_.size() - 1)];
  // Not found: in the place of the one whose bucket is the fullest; with the bucket of a source not seen
  // before.
  Source* place = &set.front();
  for (Source& candidate : set) {
    if (candidate.prefix == prefix) return candidate;
    if (candidate.bucket.full_at() < place->bucket.full_at()) place = &candidate;
  }
  *place = Source{prefix, {}};
  return *place;
}

}  // namespace sdp::pm
