#include "portmapper/wire/pm_message.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "core/base/byte_order.h"
#include "core/base/check.h"

namespace sdp::pm {
namespace {

constexpr size_t kCpIpAddrOffset = 16;
constexpr size_t kApIpAddrOffset = 32;

AddressBytes LoadAddress(Bytes datagram, size_t offset, IpVersion version) {
  AddressBytes address{};
  std::memcpy(address.data(), datagram.data() + offset, AddressSize(version));
  return address;
}

}  // namespace

Duration ToDuration(PmTime time) {
  if (time == kPmTimeForever) return kForever;
  const auto unit = time.value() <= 127 ? std::chrono::milliseconds(250) : std::chrono::milliseconds(1000);
  return time.value() * unit;
}

std::string_view ToString(PmWireError error) {
  switch (error) {
    case PmWireError::kWrongLength:
      return "not 48 bytes";
    case PmWireError::kBadVersion:
      return "unknown protocol version";
    case PmWireError::kBadIpVersion:
      return "IP version is neither 4 nor 6";
  }
  return "unknown";
}

std::string_view ToString(MessageType type) {
  switch (type) {
    case MessageType::kReq:
      return "PMReq";
    case MessageType::kAccept:
      return "PMAccept";
    case MessageType::kAck:
      return "PMAck";
    case MessageType::kDeny:
      return "PMDeny";
  }
  return "unknown";
}

Result<PmMessage, PmWireError> Parse(Bytes datagram) {
  if (datagram.size() != kPmMessageSize) return unexpected(PmWireError::kWrongLength);
  const BoundedReader<kPmMessageSize> reader(datagram.first<kPmMessageSize>());
  const uint8_t first = reader.Load<uint8_t, 0>();
  if (first >> 6 != 0) return unexpected(PmWireError::kBadVersion);
  const uint8_t ipv = first & 0x0f;
  if (ipv != 4 && ipv != 6) return unexpected(PmWireError::kBadIpVersion);
  const auto version = static_cast<IpVersion>(ipv);

  PmMessage message;
  message.type = static_cast<MessageType>(first >> 4 & 0x3);
  message.pm_time = PmTime(reader.Load<uint8_t, 1>());
  message.handle = AssocHandle(reader.Load<uint64_t, 8>());
  message.cp = {version, LoadAddress(datagram, kCpIpAddrOffset, version), reader.Load<uint16_t, 6>()};
  message.ap = {version, LoadAddress(datagram, kApIpAddrOffset, version), reader.Load<uint16_t, 4>()};
  return message;
}

Datagram Serialize(const PmMessage& message) {
  SDP_CHECK(message.cp.version == message.ap.version);
  Datagram datagram{};
  BoundedWriter<kPmMessageSize> writer(datagram);
  writer.Store<uint8_t, 0>(static_cast<uint8_t>(static_cast<unsigned>(message.type) << 4 |
                                                static_cast<unsigned>(message.cp.version)));
  writer.Store<uint8_t, 1>(message.pm_time.value());
  writer.Store<uint16_t, 4>(message.ap.port);
  writer.Store<uint16_t, 6>(message.cp.port);
  writer.Store<uint64_t, 8>(message.handle.value());
  const size_t size = AddressSize(message.cp.version);
  std::memcpy(datagram.data() + kCpIpAddrOffset, message.cp.address.data(), size);
  std::memcpy(datagram.data() + kApIpAddrOffset, message.ap.address.data(), size);
  return datagram;
}

std::string ToString(const PmMessage& message) {
  char handle[20];
  std::snprintf(handle, sizeof handle, "%016" PRIx64, message.handle.value());
  std::string text = std::string(ToString(message.type)) + " " + handle + " " + message.cp.ToString() +
                     " -> " + message.ap.ToString();
  if (message.type == MessageType::kAccept) text += " PmTime " + std::to_string(message.pm_time.value());
  return text;
}

}  // namespace sdp::pm
