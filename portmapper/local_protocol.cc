#include "portmapper/local_protocol.h"

#include <algorithm>
#include <cstring>

#include "core/base/byte_order.h"

namespace sdp::pm {
namespace {

constexpr uint32_t kMagic = 0x5344504C;  // "SDPL"

// Of a message that has this magic, this version, and zeros.
Result<void, LocalError> ParseShort(Bytes message, uint16_t version) {
  if (message.size() != kRegisterRequestSize) return unexpected(LocalError::kWrongLength);
  const BoundedReader<kRegisterRequestSize> reader(message.first<kRegisterRequestSize>());
  if (reader.Load<uint32_t, 0>() != kMagic) return unexpected(LocalError::kBadMagic);
  if (reader.Load<uint16_t, 4>() != version) return unexpected(LocalError::kBadVersion);
  return {};
}

std::array<std::byte, kRegisterRequestSize> SerializeShort(uint16_t version) {
  std::array<std::byte, kRegisterRequestSize> out{};
  BoundedWriter<kRegisterRequestSize> writer(out);
  writer.Store<uint32_t, 0>(kMagic);
  writer.Store<uint16_t, 4>(version);
  return out;
}

char Printable(char c) { return c >= 0x20 && c < 0x7f ? c : '?'; }

}  // namespace

std::string_view ToString(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "registered";
    case Refusal::kBadMessage:
      return "bad message";
    case Refusal::kBadVersion:
      return "unknown protocol version";
    case Refusal::kBadDescriptors:
      return "not the descriptors the request needs";
    case Refusal::kNotTcpListener:
      return "not a listening TCP socket";
    case Refusal::kAddressMismatch:
      return "the SDP listener has another address";
    case Refusal::kOtherNamespace:
      return "the listener is in another network namespace";
    case Refusal::kTooMany:
      return "too many registrations";
    case Refusal::kInternal:
      return "the daemon is out of resources";
  }
  return "unknown";
}

Result<RegisterRequest, LocalError> ParseRegisterRequest(Bytes message) {
  if (const auto parsed = ParseShort(message, kLocalProtocolVersion); !parsed)
    return unexpected(parsed.error());
  return RegisterRequest{kLocalProtocolVersion};
}

Result<Greeting, LocalError> ParseGreeting(Bytes message) {
  if (const auto parsed = ParseShort(message, kGreetingVersion); !parsed) return unexpected(parsed.error());
  return Greeting{};
}

Result<RnicRequest, LocalError> ParseRnicRequest(Bytes message) {
  if (message.size() != kRnicRequestSize) return unexpected(LocalError::kWrongLength);
  const BoundedReader<kRnicRequestSize> reader(message.first<kRnicRequestSize>());
  if (reader.Load<uint32_t, 0>() != kMagic) return unexpected(LocalError::kBadMagic);
  if (reader.Load<uint16_t, 4>() != kRnicRequestVersion) return unexpected(LocalError::kBadVersion);
  const uint16_t version = reader.Load<uint16_t, 6>();
  if (version != static_cast<uint16_t>(IpVersion::kV4) && version != static_cast<uint16_t>(IpVersion::kV6)) {
    return unexpected(LocalError::kBadAddress);
  }
  RnicRequest request{{.version = static_cast<IpVersion>(version), .port = reader.Load<uint16_t, 24>()}};
  const size_t size = request.sdp.version == IpVersion::kV4 ? 4 : 16;
  std::memcpy(request.sdp.address.data(), message.data() + 8, size);
  return request;
}

Result<RegisterReply, LocalError> ParseRegisterReply(Bytes message) {
  if (message.size() < kReplyHeaderSize || message.size() > kMaxReplySize)
    return unexpected(LocalError::kWrongLength);
  const BoundedReader<kReplyHeaderSize> reader(message.first<kReplyHeaderSize>());
  if (reader.Load<uint32_t, 0>() != kMagic) return unexpected(LocalError::kBadMagic);
  if (reader.Load<uint16_t, 4>() != kLocalProtocolVersion) return unexpected(LocalError::kBadVersion);
  const uint16_t refusal = reader.Load<uint16_t, 6>();
  if (refusal > kMaxRefusal) return unexpected(LocalError::kBadRefusal);
  RegisterReply reply{kLocalProtocolVersion, static_cast<Refusal>(refusal), {}};
  const Bytes text = message.subspan(kReplyHeaderSize);
  std::transform(text.begin(), text.end(), std::back_inserter(reply.text),
                 [](std::byte b) { return Printable(static_cast<char>(b)); });
  return reply;
}

std::array<std::byte, kRegisterRequestSize> Serialize(const RegisterRequest& request) {
  return SerializeShort(request.version);
}

std::array<std::byte, kRegisterRequestSize> Serialize(Greeting) { return SerializeShort(kGreetingVersion); }

std::array<std::byte, kRnicRequestSize> Serialize(const RnicRequest& request) {
  std::array<std::byte, kRnicRequestSize> out{};
  BoundedWriter<kRnicRequestSize> writer(out);
  writer.Store<uint32_t, 0>(kMagic);
  writer.Store<uint16_t, 4>(kRnicRequestVersion);
  writer.Store<uint16_t, 6>(static_cast<uint16_t>(request.sdp.version));
  std::memcpy(out.data() + 8, request.sdp.address.data(), request.sdp.address.size());
  writer.Store<uint16_t, 24>(request.sdp.port);
  return out;
}

size_t Serialize(const RegisterReply& reply, std::array<std::byte, kMaxReplySize>& out) {
  BoundedWriter<kMaxReplySize> writer(out);
  writer.Store<uint32_t, 0>(kMagic);
  writer.Store<uint16_t, 4>(reply.version);
  writer.Store<uint16_t, 6>(static_cast<uint16_t>(reply.refusal));
  const size_t length = std::min(reply.text.size(), kMaxReplyText);
  std::transform(reply.text.begin(), reply.text.begin() + static_cast<ptrdiff_t>(length),
                 out.begin() + kReplyHeaderSize, [](char c) { return static_cast<std::byte>(Printable(c)); });
  return kReplyHeaderSize + length;
}

}  // namespace sdp::pm
