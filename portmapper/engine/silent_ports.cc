#include "portmapper/engine/silent_ports.h"

#include <algorithm>

namespace sdp::pm {

std::optional<Silence> SilentPorts::Lookup(const Endpoint& port, Time now) const {
  const auto found = ports_.find(port);
  if (found == ports_.end() || now >= found->second.until) return std::nullopt;
  return found->second;
}

Silence SilentPorts::RecordSilence(const Endpoint& port, Time now) {
  Duration lasts = options_.first;
  if (const auto found = ports_.find(port); found != ports_.end()) {
    const Silence& before = found->second;
    if (now < before.until) return before;
    if (now < before.until + before.lasts) lasts = std::min(2 * before.lasts, options_.longest);
    ports_.erase(found);
  }
  const Silence silence{.since = now, .until = now + lasts, .lasts = lasts};
  MakeRoom(now);
  if (options_.max_ports > 0) ports_.emplace(port, silence);
  return silence;
}

void SilentPorts::MakeRoom(Time now) {
  if (ports_.size() < options_.max_ports) return;
  std::erase_if(ports_, [&](const auto& entry) { return entry.second.until <= now; });
  if (ports_.size() < options_.max_ports || ports_.empty()) return;
  ports_.erase(std::min_element(ports_.begin(), ports_.end(), [](const auto& a, const auto& b) {
    return a.second.until < b.second.until;
  }));
}

}  // namespace sdp::pm
