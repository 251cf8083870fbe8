// SDP addresses that did not answer a connect: a firewall may drop what is sent there. A client leaves such
// an address alone for a minute, after the next silence for two, and so on up to an hour. An answer of any
// kind clears it. Bounded, no clock; the owner locks.
#ifndef SDP_PORTMAPPER_ENGINE_SILENT_PORTS_H_
#define SDP_PORTMAPPER_ENGINE_SILENT_PORTS_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <unordered_map>

#include "core/base/types.h"
#include "portmapper/endpoint.h"

namespace sdp::pm {

struct SilentPortsOptions {
  size_t max_ports = 1024;
  Duration first = std::chrono::seconds(60);  // after the first silence
  Duration longest = std::chrono::hours(1);   // each further silence doubles the time, up to this
};

struct Silence {
  Time since;        // when the port last did not answer
  Time until;        // not to be tried before
  Duration lasts{};  // until - since
};

class SilentPorts {
 public:
  explicit SilentPorts(const SilentPortsOptions& options = {}) : options_(options) {}

  // Empty: the port may be tried.
  [[nodiscard]] std::optional<Silence> Lookup(const Endpoint& port, Time now) const;
  // The port did not answer. Returns what is remembered now. A silence within the time of another one, as of
  // connects that were under way together, changes nothing.
  Silence RecordSilence(const Endpoint& port, Time now);
  // The port answered, or refused.
  void RecordAnswer(const Endpoint& port) { ports_.erase(port); }

  [[nodiscard]] size_t size() const { return ports_.size(); }

 private:
  void MakeRoom(Time now);

  SilentPortsOptions options_;
  // An entry stays for its own length beyond its end, for the next silence to be longer.
  std::unordered_map<Endpoint, Silence> ports_;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_SILENT_PORTS_H_
