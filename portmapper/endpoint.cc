#include "portmapper/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace sdp::pm {
namespace {

constexpr std::array<uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

std::optional<uint16_t> ParsePort(std::string_view text) {
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc() || rest != end || text.empty()) return std::nullopt;
  return port;
}

std::optional<Endpoint> ParseAddress(std::string_view text, IpVersion version, uint16_t port) {
  char terminated[INET6_ADDRSTRLEN] = {};
  if (text.size() >= sizeof terminated) return std::nullopt;
  std::copy(text.begin(), text.end(), terminated);
  Endpoint endpoint{version, {}, port};
  const int family = version == IpVersion::kV4 ? AF_INET : AF_INET6;
  // An embedded zero byte would end the text early.
  if (std::strlen(terminated) != text.size() || inet_pton(family, terminated, endpoint.address.data()) != 1) {
    return std::nullopt;
  }
  return endpoint;
}

}  // namespace

bool Endpoint::IsLinkLocal() const {
  return version == IpVersion::kV6 && address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

bool Endpoint::IsLoopback() const {
  if (version == IpVersion::kV4) return address[0] == 127;
  return std::all_of(address.begin(), address.end() - 1, [](uint8_t b) { return b == 0; }) &&
         address[15] == 1;
}

bool Endpoint::IsMulticastOrBroadcast() const {
  if (version == IpVersion::kV6) return address[0] == 0xff;
  const bool broadcast =
      std::all_of(address.begin(), address.begin() + 4, [](uint8_t b) { return b == 0xff; });
  return broadcast || (address[0] & 0xf0) == 0xe0;
}

std::string Endpoint::ToString() const {
  char text[INET6_ADDRSTRLEN] = {};
  const bool v4 = version == IpVersion::kV4;
  inet_ntop(v4 ? AF_INET : AF_INET6, address.data(), text, sizeof text);
  const std::string host = v4 ? std::string(text) : "[" + std::string(text) + "]";
  return host + ":" + std::to_string(port);
}

Endpoint HostOf(const Endpoint& endpoint) {
  Endpoint host = endpoint;
  host.port = 0;
  return host;
}

Endpoint NormalizeMapped(const Endpoint& endpoint) {
  if (endpoint.version != IpVersion::kV6 ||
      !std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), endpoint.address.begin())) {
    return endpoint;
  }
  Endpoint v4{IpVersion::kV4, {}, endpoint.port};
  std::copy(endpoint.address.begin() + 12, endpoint.address.end(), v4.address.begin());
  return v4;
}

Endpoint ToMapped(const Endpoint& endpoint) {
  if (endpoint.version == IpVersion::kV6) return endpoint;
  Endpoint v6{IpVersion::kV6, {}, endpoint.port};
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), v6.address.begin());
  std::copy(endpoint.address.begin(), endpoint.address.begin() + 4, v6.address.begin() + 12);
  return v6;
}

std::optional<Endpoint> FromSockaddr(const sockaddr* address, socklen_t length) {
  sa_family_t family = AF_UNSPEC;
  if (length < sizeof family) return std::nullopt;
  std::memcpy(&family, address, sizeof family);
  if (family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    Endpoint endpoint{IpVersion::kV4, {}, ntohs(in.sin_port)};
    std::memcpy(endpoint.address.data(), &in.sin_addr, sizeof in.sin_addr);
    return endpoint;
  }
  // RFC 2133 had no scope: the kernel still takes the shorter form.
  if (family == AF_INET6 && length >= offsetof(sockaddr_in6, sin6_scope_id)) {
    sockaddr_in6 in6{};
    std::memcpy(&in6, address, std::min<size_t>(length, sizeof in6));
    Endpoint endpoint{IpVersion::kV6, {}, ntohs(in6.sin6_port)};
    std::memcpy(endpoint.address.data(), &in6.sin6_addr, sizeof in6.sin6_addr);
    return endpoint;
  }
  return std::nullopt;
}

std::optional<Endpoint> FromSockaddr(const sockaddr_storage& address) {
  return FromSockaddr(reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

socklen_t ToSockaddr(const Endpoint& endpoint, sockaddr_storage* out, uint32_t scope_id) {
  *out = {};
  if (endpoint.version == IpVersion::kV4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(endpoint.port);
    std::memcpy(&in.sin_addr, endpoint.address.data(), sizeof in.sin_addr);
    std::memcpy(out, &in, sizeof in);
    return sizeof in;
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(endpoint.port);
  in6.sin6_scope_id = scope_id;
  std::memcpy(&in6.sin6_addr, endpoint.address.data(), sizeof in6.sin6_addr);
  std::memcpy(out, &in6, sizeof in6);
  return sizeof in6;
}

std::optional<Endpoint> ParseEndpoint(std::string_view text, std::optional<uint16_t> default_port) {
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view rest = text.substr(close + 1);
    std::optional<uint16_t> port = default_port;
    if (!rest.empty()) port = rest.front() == ':' ? ParsePort(rest.substr(1)) : std::nullopt;
    if (!port) return std::nullopt;
    return ParseAddress(text.substr(1, close - 1), IpVersion::kV6, *port);
  }
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos && colon != text.rfind(':')) {
    return default_port ? ParseAddress(text, IpVersion::kV6, *default_port) : std::nullopt;
  }
  const std::optional<uint16_t> port =
      colon == std::string_view::npos ? default_port : ParsePort(text.substr(colon + 1));
  if (!port) return std::nullopt;
  return ParseAddress(text.substr(0, colon), IpVersion::kV4, *port);
}

}  // namespace sdp::pm

size_t std::hash<sdp::pm::Endpoint>::operator()(const sdp::pm::Endpoint& endpoint) const noexcept {
  uint64_t halves[2];
  static_assert(sizeof halves == sizeof endpoint.address);
  std::memcpy(halves, endpoint.address.data(), sizeof halves);
  // Multiply-and-fold; the odd constants are those of SplitMix64.
  uint64_t h = halves[0] * 0x9E3779B97F4A7C15u;
  h = (h ^ (h >> 32) ^ halves[1]) * 0xBF58476D1CE4E5B9u;
  h = (h ^ (h >> 29) ^ (uint64_t{endpoint.port} << 8 | static_cast<uint8_t>(endpoint.version))) *
      0x94D049BB133111EBu;
  return static_cast<size_t>(h ^ (h >> 32));
}
