#include "verbs/softiwarp/wire/terminate.h"

#include "core/base/byte_order.h"

namespace sdp::iwarp {
namespace {

constexpr size_t kControlSize = 4;
constexpr size_t kLengthSize = 2;
constexpr uint32_t kLengthValidBit = 0x8000;
constexpr uint32_t kDdpHeaderBit = 0x4000;
constexpr uint32_t kReadRequestBit = 0x2000;

struct NamedCause {
  TerminateCause cause;
  const char* name;
};

constexpr NamedCause kNames[] = {
    {{0, 0, 0x00}, "local catastrophic error"},
    {{0, 1, 0x00}, "invalid STag"},
    {{0, 1, 0x01}, "base or bounds violation"},
    {{0, 1, 0x02}, "access rights violation"},
    {{0, 1, 0x03}, "STag not associated with the stream"},
    {{0, 1, 0x04}, "TO wrap"},
    {{0, 1, 0x09}, "STag cannot be invalidated"},
    {{0, 1, 0xff}, "unspecified protection error"},
    {{0, 2, 0x05}, "invalid RDMAP version"},
    {{0, 2, 0x06}, "unexpected opcode"},
    {{0, 2, 0x07}, "catastrophic error, this stream"},
    {{0, 2, 0x08}, "catastrophic error, global"},
    {{0, 2, 0x09}, "STag cannot be invalidated"},
    {{0, 2, 0xff}, "unspecified error"},
    {{1, 0, 0x00}, "local catastrophic error"},
    {{1, 1, 0x00}, "tagged: invalid STag"},
    {{1, 1, 0x01}, "tagged: base or bounds violation"},
    {{1, 1, 0x02}, "tagged: STag not associated with the stream"},
    {{1, 1, 0x03}, "tagged: TO wrap"},
    {{1, 1, 0x04}, "tagged: invalid DDP version"},
    {{1, 2, 0x01}, "untagged: invalid queue number"},
    {{1, 2, 0x02}, "untagged: no buffer available"},
    {{1, 2, 0x03}, "untagged: MSN out of range"},
    {{1, 2, 0x04}, "untagged: invalid message offset"},
    {{1, 2, 0x05}, "untagged: message too long for the buffer"},
    {{1, 2, 0x06}, "untagged: invalid DDP version"},
    {{2, 0, 0x01}, "TCP connection lost"},
    {{2, 0, 0x02}, "CRC mismatch"},
    {{2, 0, 0x03}, "FPDU start not where the stream has it"},
    {{2, 0, 0x04}, "invalid request or reply frame"},
    {{2, 0, 0x05}, "local catastrophic error"},
    {{2, 0, 0x06}, "insufficient IRD"},
    {{2, 0, 0x07}, "no matching RTR"},
};

}  // namespace

const char* LayerName(uint8_t layer) {
  switch (layer) {
    case 0:
      return "RDMAP";
    case 1:
      return "DDP";
    case 2:
      return "MPA";
    default:
      return "unknown layer";
  }
}

const char* CauseName(const TerminateCause& cause) {
  for (const NamedCause& n : kNames) {
    if (n.cause == cause) return n.name;
  }
  return "unknown error";
}

size_t SerializeTerminate(const TerminateMessage& m, TerminateBytes& out) {
  uint32_t control = static_cast<uint32_t>(m.cause.layer & 0xf) << 28 |
                     static_cast<uint32_t>(m.cause.etype & 0xf) << 24 |
                     static_cast<uint32_t>(m.cause.ecode) << 16;
  std::byte* p = out.data() + kControlSize;
  if (m.ddp_header) {
    control |= kDdpHeaderBit | (m.segment_length_valid ? kLengthValidBit : 0);
    StoreBe<uint16_t>(p, m.segment_length);
    p += kLengthSize;
    p += SerializeDdpHeader(*m.ddp_header, p);
    if (m.read_request) {
      control |= kReadRequestBit;
      SerializeReadRequest(*m.read_request, std::span<std::byte, kReadRequestSize>(p, kReadRequestSize));
      p += kReadRequestSize;
    }
  }
  StoreBe<uint32_t>(out.data(), control);
  return static_cast<size_t>(p - out.data());
}

std::optional<TerminateMessage> ParseTerminate(Bytes bytes) {
  if (bytes.size() < kControlSize) return std::nullopt;
  const auto control = LoadBe<uint32_t>(bytes.data());
  TerminateMessage m;
  m.cause = {static_cast<uint8_t>(control >> 28), static_cast<uint8_t>(control >> 24 & 0xf),
             static_cast<uint8_t>(control >> 16)};
  if ((control & kDdpHeaderBit) == 0) return m;
  bytes = bytes.subspan(kControlSize);
  if (bytes.size() < kLengthSize + kTaggedHeaderSize) return std::nullopt;
  m.segment_length_valid = (control & kLengthValidBit) != 0;
  m.segment_length = LoadBe<uint16_t>(bytes.data());
  bytes = bytes.subspan(kLengthSize);
  if (bytes.size() < DdpHeaderSize(bytes[0])) return std::nullopt;
  m.ddp_header = ParseDdpHeader(bytes.data());
  bytes = bytes.subspan(m.ddp_header->size());
  if ((control & kReadRequestBit) != 0) {
    if (bytes.size() < kReadRequestSize) return std::nullopt;
    m.read_request = ParseReadRequest(bytes.first<kReadRequestSize>());
  }
  return m;
}

}  // namespace sdp::iwarp
