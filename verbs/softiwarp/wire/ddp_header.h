// The DDP segment headers with the RDMAP control field inside (RFC 5041, section 4; RFC 5040, section 4.1).
//
//    tagged (14)   |T|L| Rsvd  |DV | |RV |Rsv| Opcode| STag (32) | TO (64) |
//    untagged (18) |T|L| Rsvd  |DV | |RV |Rsv| Opcode| Invalidate STag (32) | QN (32) | MSN (32) | MO (32) |
//
// Bits from the left: T tagged, L last segment of the message, DV DDP version (1), RV RDMAP version (1; 0
// from RDMAC peers).
#ifndef SDP_VERBS_SOFTIWARP_WIRE_DDP_HEADER_H_
#define SDP_VERBS_SOFTIWARP_WIRE_DDP_HEADER_H_

#include <cstddef>
#include <cstdint>

#include "core/base/types.h"

namespace sdp::iwarp {

inline constexpr size_t kTaggedHeaderSize = 14;
inline constexpr size_t kUntaggedHeaderSize = 18;
inline constexpr uint8_t kDdpVersion = 1;
inline constexpr uint8_t kRdmapVersion = 1;

struct DdpHeader {
  bool tagged = false;
  bool last = false;
  uint8_t ddp_version = kDdpVersion;
  uint8_t rdmap_version = kRdmapVersion;
  uint8_t opcode = 0;  // as on the wire, 0 to 15
  STag stag{};         // tagged: the sink's STag; untagged: the STag to invalidate
  uint64_t to = 0;     // tagged
  uint32_t queue = 0;  // untagged: QN
  uint32_t msn = 0;    // untagged
  uint32_t mo = 0;     // untagged

  [[nodiscard]] size_t size() const { return tagged ? kTaggedHeaderSize : kUntaggedHeaderSize; }
  friend bool operator==(const DdpHeader&, const DdpHeader&) = default;
};

// Returns the T bit of a header's first byte, from which the header's size follows.
[[nodiscard]] bool IsTagged(std::byte first);
[[nodiscard]] inline size_t DdpHeaderSize(std::byte first) {
  return IsTagged(first) ? kTaggedHeaderSize : kUntaggedHeaderSize;
}

// Reads a header of DdpHeaderSize(*bytes) bytes; the caller has checked that they are there. Any bytes make a
// header; SegmentJudge judges the values later.
[[nodiscard]] DdpHeader ParseDdpHeader(const std::byte* bytes);
// Writes header.size() bytes and returns that number.
size_t SerializeDdpHeader(const DdpHeader& header, std::byte* out);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_WIRE_DDP_HEADER_H_
