#include "verbs/softiwarp/wire/ddp_header.h"

#include "core/base/byte_order.h"

namespace sdp::iwarp {
namespace {

constexpr uint8_t kTaggedBit = 0x80;
constexpr uint8_t kLastBit = 0x40;
constexpr uint8_t kDdpVersionMask = 0x03;
constexpr uint8_t kOpcodeMask = 0x0f;
constexpr int kRdmapVersionShift = 6;

}  // namespace

bool IsTagged(std::byte first) { return (static_cast<uint8_t>(first) & kTaggedBit) != 0; }

DdpHeader ParseDdpHeader(const std::byte* bytes) {
  const auto ddp = static_cast<uint8_t>(bytes[0]);
  const auto rdmap = static_cast<uint8_t>(bytes[1]);
  DdpHeader h;
  h.tagged = (ddp & kTaggedBit) != 0;
  h.last = (ddp & kLastBit) != 0;
  h.ddp_version = ddp & kDdpVersionMask;
  h.rdmap_version = rdmap >> kRdmapVersionShift;
  h.opcode = rdmap & kOpcodeMask;
  h.stag = STag(LoadBe<uint32_t>(bytes + 2));
  if (h.tagged) {
    h.to = LoadBe<uint64_t>(bytes + 6);
  } else {
    h.queue = LoadBe<uint32_t>(bytes + 6);
    h.msn = LoadBe<uint32_t>(bytes + 10);
    h.mo = LoadBe<uint32_t>(bytes + 14);
  }
  return h;
}

size_t SerializeDdpHeader(const DdpHeader& h, std::byte* out) {
  out[0] = static_cast<std::byte>((h.tagged ? kTaggedBit : 0) | (h.last ? kLastBit : 0) |
                                  (h.ddp_version & kDdpVersionMask));
  out[1] =
      static_cast<std::byte>(((h.rdmap_version << kRdmapVersionShift) & 0xff) | (h.opcode & kOpcodeMask));
  StoreBe<uint32_t>(out + 2, h.stag.value());
  if (h.tagged) {
    StoreBe<uint64_t>(out + 6, h.to);
  } else {
    StoreBe<uint32_t>(out + 6, h.queue);
    StoreBe<uint32_t>(out + 10, h.msn);
    StoreBe<uint32_t>(out + 14, h.mo);
  }
  return h.size();
}

}  // namespace sdp::iwarp
