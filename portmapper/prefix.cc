#include "portmapper/prefix.h"

#include <algorithm>
#include <charconv>

namespace sdp::pm {
namespace {

uint8_t WidthOf(IpVersion version) { return version == IpVersion::kV4 ? 32 : 128; }

// The bit `position` of an address, counted from its beginning.
bool Bit(const AddressBytes& address, size_t position) {
  return (address[position / 8] >> (7 - position % 8) & 1) != 0;
}

template <typename T>
std::optional<T> ParseNumber(std::string_view text, T least, T most) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

bool Prefix::Contains(const Endpoint& address) const {
  if (any) return true;
  const Endpoint normalized = NormalizeMapped(address);
  if (normalized.version != network.version) return false;
  const size_t whole = length / 8;
  if (!std::equal(network.address.begin(), network.address.begin() + whole, normalized.address.begin())) {
    return false;
  }
  for (size_t i = whole * 8; i < length; ++i) {
    if (Bit(network.address, i) != Bit(normalized.address, i)) return false;
  }
  return true;
}

std::string Prefix::ToString() const {
  if (any) return "*";
  const std::string text = network.ToString();  // "10.0.0.0:0" or "[::]:0"
  const bool v4 = network.version == IpVersion::kV4;
  return (v4 ? text.substr(0, text.rfind(':')) : text.substr(1, text.rfind(']') - 1)) + "/" +
         std::to_string(length);
}

std::optional<Prefix> ParsePrefix(std::string_view text) {
  if (text == "*") return Prefix{};
  const size_t slash = text.find('/');
  const std::string_view address = text.substr(0, slash);
  // Without brackets and port: an address alone.
  if (address.find_first_of("[]") != std::string_view::npos) return std::nullopt;
  const bool v6 = address.find(':') != std::string_view::npos;
  const auto network =
      ParseEndpoint(v6 ? "[" + std::string(address) + "]" : std::string(address), uint16_t{0});
  if (!network) return std::nullopt;
  Prefix prefix{false, *network, WidthOf(network->version)};
  if (slash != std::string_view::npos) {
    const auto length = ParseNumber<uint8_t>(text.substr(slash + 1), 0, WidthOf(network->version));
    if (!length) return std::nullopt;
    prefix.length = *length;
  }
  for (size_t i = prefix.length; i < WidthOf(network->version); ++i) {
    if (Bit(network->address, i)) return std::nullopt;
  }
  // As addresses are compared: ::ffff:10.0.0.0/104 is 10.0.0.0/8.
  prefix.network = NormalizeMapped(prefix.network);
  if (prefix.network.version != network->version) prefix.length -= 96;
  return prefix;
}

std::optional<PortRange> ParsePortRange(std::string_view text) {
  const size_t dash = text.find('-');
  const auto low = ParseNumber<uint16_t>(text.substr(0, dash), 1, UINT16_MAX);
  const auto high =
      dash == std::string_view::npos ? low : ParseNumber<uint16_t>(text.substr(dash + 1), 1, UINT16_MAX);
  if (!low || !high || *low > *high) return std::nullopt;
  return PortRange{*low, *high};
}

std::optional<Services> ParseServices(std::string_view text) {
  std::string_view hosts = text;
  std::optional<std::string_view> ports;
  if (!text.empty() && text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    hosts = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (hosts.find(':') == std::string_view::npos || (!rest.empty() && rest.front() != ':'))
      return std::nullopt;
    if (!rest.empty()) ports = rest.substr(1);
  } else if (const size_t colon = text.find(':');
             colon != std::string_view::npos && colon == text.rfind(':')) {
    hosts = text.substr(0, colon);
    ports = text.substr(colon + 1);
  }
  const auto prefix = ParsePrefix(hosts);
  const auto range = ports ? ParsePortRange(*ports) : PortRange{};
  if (!prefix || !range) return std::nullopt;
  return Services{*prefix, *range};
}

}  // namespace sdp::pm
