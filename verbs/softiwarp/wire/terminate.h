// The Terminate message (RFC 5040, section 4.8) and the errors it can carry.
//
//    | Layer(4) | EType(4) | Error Code(8) |M|D|R| Reserved(13) |
//    | DDP Segment Length(16), if D | Terminated DDP Header (14 or 18), if D |
//    | Terminated RDMA Header (28), if R |
#ifndef SDP_VERBS_SOFTIWARP_WIRE_TERMINATE_H_
#define SDP_VERBS_SOFTIWARP_WIRE_TERMINATE_H_

#include <array>
#include <cstdint>
#include <optional>

#include "core/base/types.h"
#include "verbs/softiwarp/wire/ddp_header.h"
#include "verbs/softiwarp/wire/read_request.h"

namespace sdp::iwarp {

struct TerminateCause {
  uint8_t layer = 0;
  uint8_t etype = 0;
  uint8_t ecode = 0;
  friend bool operator==(const TerminateCause&, const TerminateCause&) = default;
};

namespace cause {
// RDMAP, Local Catastrophic Error
inline constexpr TerminateCause kLocalCatastrophic{0, 0, 0};
// RDMAP, Remote Protection Error
inline constexpr TerminateCause kReadInvalidSTag{0, 1, 0x00};
inline constexpr TerminateCause kReadBounds{0, 1, 0x01};
inline constexpr TerminateCause kReadAccess{0, 1, 0x02};
inline constexpr TerminateCause kReadToWrap{0, 1, 0x04};
inline constexpr TerminateCause kCannotInvalidate{0, 1, 0x09};
// RDMAP, Remote Operation Error
inline constexpr TerminateCause kRdmapVersion{0, 2, 0x05};
inline constexpr TerminateCause kUnexpectedOpcode{0, 2, 0x06};
inline constexpr TerminateCause kUnspecified{0, 2, 0xff};
// DDP, Tagged Buffer Error
inline constexpr TerminateCause kTaggedInvalidSTag{1, 1, 0x00};
inline constexpr TerminateCause kTaggedBounds{1, 1, 0x01};
inline constexpr TerminateCause kTaggedToWrap{1, 1, 0x03};
inline constexpr TerminateCause kTaggedVersion{1, 1, 0x04};
// DDP, Untagged Buffer Error
inline constexpr TerminateCause kInvalidQueue{1, 2, 0x01};
inline constexpr TerminateCause kNoBuffer{1, 2, 0x02};
inline constexpr TerminateCause kMsnRange{1, 2, 0x03};
inline constexpr TerminateCause kInvalidMo{1, 2, 0x04};
inline constexpr TerminateCause kTooLong{1, 2, 0x05};
inline constexpr TerminateCause kUntaggedVersion{1, 2, 0x06};
// MPA (RFC 5044, section 8; RFC 6581, section 8)
inline constexpr TerminateCause kBadCrc{2, 0, 0x02};
inline constexpr TerminateCause kFpduStart{2, 0, 0x03};
inline constexpr TerminateCause kInsufficientIrd{2, 0, 0x06};
inline constexpr TerminateCause kNoMatchingRtr{2, 0, 0x07};
}  // namespace cause

// Return "RDMAP", "DDP" or "MPA", and the error's name from the tables; for people.
[[nodiscard]] const char* LayerName(uint8_t layer);
[[nodiscard]] const char* CauseName(const TerminateCause& cause);

// The content after the Terminate's own DDP header.
struct TerminateMessage {
  TerminateCause cause;
  bool segment_length_valid = false;          // M
  uint16_t segment_length = 0;                // of the offending DDP segment; present with the header
  std::optional<DdpHeader> ddp_header{};      // D
  std::optional<ReadRequest> read_request{};  // R
};

inline constexpr size_t kMaxTerminateSize = 4 + 2 + kUntaggedHeaderSize + kReadRequestSize;
using TerminateBytes = std::array<std::byte, kMaxTerminateSize>;

// Returns the number of bytes written.
size_t SerializeTerminate(const TerminateMessage& message, TerminateBytes& out);
// Returns nullopt if there are fewer bytes than the control field announces.
[[nodiscard]] std::optional<TerminateMessage> ParseTerminate(Bytes bytes);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_WIRE_TERMINATE_H_
