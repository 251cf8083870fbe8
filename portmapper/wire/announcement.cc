#include "portmapper/wire/announcement.h"

#include <cstring>

#include "core/base/byte_order.h"
#include "core/base/check.h"

namespace sdp::pm {
namespace {

constexpr size_t kConventionalOffset = 16;
constexpr size_t kSdpOffset = 32;

Endpoint LoadEndpoint(Bytes datagram, size_t offset, IpVersion version, uint16_t port) {
  Endpoint endpoint{version, {}, port};
  std::memcpy(endpoint.address.data(), datagram.data() + offset, AddressSize(version));
  return endpoint;
}

bool CanBeConnectedTo(const Endpoint& endpoint) {
  const Endpoint address = NormalizeMapped(endpoint);
  return address.port != 0 && !address.IsWildcard() && !address.IsMulticastOrBroadcast();
}

}  // namespace

std::optional<Announcement> ParseAnnouncement(Bytes datagram) {
  if (datagram.size() != kPmMessageSize) return std::nullopt;
  const BoundedReader<kPmMessageSize> reader(datagram.first<kPmMessageSize>());
  const uint8_t first = reader.Load<uint8_t, 0>();
  const unsigned type = first >> 4 & 0x3;
  const unsigned ipv = first & 0x0f;
  if (first >> 6 != 1 || type == 2 || (ipv != 4 && ipv != 6)) return std::nullopt;
  const auto version = static_cast<IpVersion>(ipv);
  Announcement announcement;
  announcement.type = static_cast<AnnouncementType>(type);
  announcement.lifetime = reader.Load<uint8_t, 1>();
  announcement.weight = reader.Load<uint16_t, 2>();
  announcement.cookie = reader.Load<uint64_t, 8>();
  announcement.sdp = LoadEndpoint(datagram, kSdpOffset, version, reader.Load<uint16_t, 4>());
  announcement.conventional =
      LoadEndpoint(datagram, kConventionalOffset, version, reader.Load<uint16_t, 6>());
  if (!CanBeConnectedTo(announcement.conventional) || !CanBeConnectedTo(announcement.sdp))
    return std::nullopt;
  return announcement;
}

Datagram Serialize(const Announcement& announcement) {
  const IpVersion version = announcement.conventional.version;
  SDP_CHECK(version == announcement.sdp.version);
  Datagram datagram{};
  BoundedWriter<kPmMessageSize> writer(datagram);
  writer.Store<uint8_t, 0>(static_cast<uint8_t>(0x40u | static_cast<unsigned>(announcement.type) << 4 |
                                                static_cast<unsigned>(version)));
  writer.Store<uint8_t, 1>(announcement.lifetime);
  writer.Store<uint16_t, 2>(announcement.weight);
  writer.Store<uint16_t, 4>(announcement.sdp.port);
  writer.Store<uint16_t, 6>(announcement.conventional.port);
  writer.Store<uint64_t, 8>(announcement.cookie);
  std::memcpy(datagram.data() + kConventionalOffset, announcement.conventional.address.data(),
              AddressSize(version));
  std::memcpy(datagram.data() + kSdpOffset, announcement.sdp.address.data(), AddressSize(version));
  return datagram;
}

}  // namespace sdp::pm
