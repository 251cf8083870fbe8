// An address prefix and a range of ports, as access lists and registries name hosts and services.
#ifndef SDP_PORTMAPPER_PREFIX_H_
#define SDP_PORTMAPPER_PREFIX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "portmapper/endpoint.h"

namespace sdp::pm {

struct Prefix {
  bool any = true;     // "*": every address of either version; then the rest means nothing
  Endpoint network;    // the port is 0, and so are the bits beyond `length`
  uint8_t length = 0;  // 0 to 32 or 128

  // v4-mapped addresses are taken as IPv4.
  [[nodiscard]] bool Contains(const Endpoint& address) const;
  // "10.0.0.0/8", "::/0" or "*".
  [[nodiscard]] std::string ToString() const;

  friend bool operator==(const Prefix&, const Prefix&) = default;
};

struct PortRange {
  uint16_t low = 0;
  uint16_t high = UINT16_MAX;

  [[nodiscard]] bool Contains(uint16_t port) const { return low <= port && port <= high; }

  friend bool operator==(const PortRange&, const PortRange&) = default;
};

// "10.0.0.0/8", "2001:db8::/32", a lone address (its full length) or "*". Bits beyond the length must be
// zero: they are a slip of the pen more often than not.
[[nodiscard]] std::optional<Prefix> ParsePrefix(std::string_view text);

// "80" or "8000-8099", from 1 on.
[[nodiscard]] std::optional<PortRange> ParsePortRange(std::string_view text);

// Services: a prefix, and behind it, if not all ports are meant, a colon and ports: "10.0.0.0/8:80-90",
// "[2001:db8::/32]:80", "*:80".
struct Services {
  Prefix hosts;
  PortRange ports;

  [[nodiscard]] bool Contains(const Endpoint& service) const {
    return ports.Contains(service.port) && hosts.Contains(service);
  }
  friend bool operator==(const Services&, const Services&) = default;
};
[[nodiscard]] std::optional<Services> ParseServices(std::string_view text);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_PREFIX_H_
