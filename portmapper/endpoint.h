// An IP address and a port, as the port mapper's messages, caches and registrations know it: a small value
// that copies, compares and hashes. The wire has no field for an IPv6 scope (SDP 7.3). So none is parsed or
// sent. A client, which has the scope of what it asks about, takes it for the SDP address, too.
#ifndef SDP_PORTMAPPER_ENDPOINT_H_
#define SDP_PORTMAPPER_ENDPOINT_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sdp::pm {

// The values are those of the IPV field (SDP 7.3.1.3).
enum class IpVersion : uint8_t { kV4 = 4, kV6 = 6 };

// Network order. An IPv4 address is the first four bytes, the other twelve are zero.
using AddressBytes = std::array<uint8_t, 16>;

constexpr size_t AddressSize(IpVersion version) { return version == IpVersion::kV4 ? 4 : 16; }

struct Endpoint {
  IpVersion version = IpVersion::kV4;
  AddressBytes address{};
  uint16_t port = 0;   // host order
  uint32_t scope = 0;  // a client's, of a link-local address

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
  // For abseil's hash tables, which the daemon uses; names nothing of abseil.
  template <typename H>
  friend H AbslHashValue(H state, const Endpoint& e) {
    return H::combine(std::move(state), e.version, e.address, e.port);
  }

  // 0.0.0.0 or [::].
  [[nodiscard]] bool IsWildcard() const { return address == AddressBytes{}; }
  // fe80::/10.
  [[nodiscard]] bool IsLinkLocal() const;
  // 127.0.0.0/8 or [::1].
  [[nodiscard]] bool IsLoopback() const;
  // 224.0.0.0/4, 255.255.255.255 or ff00::/8: nothing one can connect to.
  [[nodiscard]] bool IsMulticastOrBroadcast() const;

  // "10.0.0.1:80" and "[::1]:80".
  [[nodiscard]] std::string ToString() const;
};

// The address alone: what a negative cache of hosts is keyed by. The port is 0.
[[nodiscard]] Endpoint HostOf(const Endpoint& endpoint);

// ::ffff:a.b.c.d becomes a.b.c.d; everything else is returned as it is. Callers who compare addresses that
// came from an AF_INET6 socket normalise first; FromSockaddr does not, as a dual-stack socket's owner may
// want to know.
[[nodiscard]] Endpoint NormalizeMapped(const Endpoint& endpoint);

// a.b.c.d becomes ::ffff:a.b.c.d (the wildcard too); an IPv6 endpoint is returned as it is.
[[nodiscard]] Endpoint ToMapped(const Endpoint& endpoint);

// Empty for another family than AF_INET and AF_INET6, and when `length` is too short for the family.
[[nodiscard]] std::optional<Endpoint> FromSockaddr(const sockaddr* address, socklen_t length);
[[nodiscard]] std::optional<Endpoint> FromSockaddr(const sockaddr_storage& address);

// Fills a sockaddr_in or sockaddr_in6, returns its length. `scope_id` is for link-local IPv6 addresses.
socklen_t ToSockaddr(const Endpoint& endpoint, sockaddr_storage* out, uint32_t scope_id = 0);

// "10.0.0.1:80", "[::1]:80"; with a default port also "10.0.0.1", "[::1]" and "::1". No names, no white
// space.
[[nodiscard]] std::optional<Endpoint> ParseEndpoint(std::string_view text,
                                                    std::optional<uint16_t> default_port = std::nullopt);

}  // namespace sdp::pm

template <>
struct std::hash<sdp::pm::Endpoint> {
  size_t operator()(const sdp::pm::Endpoint& endpoint) const noexcept;
};

#endif  // SDP_PORTMAPPER_ENDPOINT_H_
