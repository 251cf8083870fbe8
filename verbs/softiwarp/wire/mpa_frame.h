// MPA Request and Reply Frames (RFC 5044, section 7.1.1) with the enhanced set-up's words (RFC 6581, section
// 9).
//
//    | Key (16) |M|C|R|S| Res(4) | Rev(8) | PD_Length(16) | [ |A|B| IRD(14) | |C|D| ORD(14) | ] |
//    | Private Data |
//
// M: the sender requires markers in what it receives. C: CRC. R: rejected (reply). S: the four bytes of IRD
// and ORD precede the private data and count in PD_Length. A: peer-to-peer. B, C, D: RTR by zero-length Send,
// RDMA Write, RDMA Read.
#ifndef SDP_VERBS_SOFTIWARP_WIRE_MPA_FRAME_H_
#define SDP_VERBS_SOFTIWARP_WIRE_MPA_FRAME_H_

#include <cstdint>
#include <optional>

#include "core/base/result.h"
#include "core/base/types.h"

namespace sdp::iwarp {

inline constexpr size_t kMpaHeaderSize = 20;
inline constexpr size_t kMpaWordsSize = 4;
inline constexpr size_t kMaxPrivateData = 512;
inline constexpr size_t kMaxMpaFrame = kMpaHeaderSize + kMaxPrivateData;
inline constexpr uint16_t kIrdOrdMask = 0x3fff;
// "Not negotiated here" (RFC 6581, section 9.1); also the largest value the field holds.
inline constexpr uint16_t kIrdOrdOpen = 0x3fff;

enum class MpaFrameKind : uint8_t { kRequest, kReply };

struct MpaWords {
  uint16_t ird = 0;
  uint16_t ord = 0;
  bool peer_to_peer = false;  // A
  bool rtr_send = false;      // B
  bool rtr_write = false;     // C
  bool rtr_read = false;      // D
  friend bool operator==(const MpaWords&, const MpaWords&) = default;
};

struct MpaFrame {
  MpaFrameKind kind = MpaFrameKind::kRequest;
  bool markers = false;
  bool crc = false;
  bool reject = false;
  uint8_t revision = 2;
  std::optional<MpaWords> words{};  // present when S is set and the revision has it
  Bytes private_data{};             // without the words
};

enum class MpaFrameError : uint8_t {
  kIncomplete,    // no error yet: more bytes are needed
  kBadKey,        // not an MPA peer, or both are initiators
  kBadLength,     // PD_Length above 512
  kWordsMissing,  // S without room for the words
};

struct ParsedMpaFrame {
  MpaFrame frame;   // its private data points into the input
  size_t size = 0;  // bytes of the input that the frame takes
};

// Parses a frame. `expected`: the required key. A wrong key is an error at its first wrong byte.
[[nodiscard]] Result<ParsedMpaFrame, MpaFrameError> ParseMpaFrame(Bytes bytes, MpaFrameKind expected);
// Writes a frame to `out`, which has room for kMaxMpaFrame bytes; words and private data have at most 512.
// Returns the size.
size_t SerializeMpaFrame(const MpaFrame& frame, MutableBytes out);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_WIRE_MPA_FRAME_H_
