// Where MPA's markers lie in a stream (RFC 5044, section 4.3): four octets before the first FPDU and at every
// 512th octet after.
//
// "Clean" bytes are the stream without its markers. A marker precedes every 508th clean byte, including the
// first.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_MARKERS_H_
#define SDP_VERBS_SOFTIWARP_PROTO_MARKERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/types.h"
#include "verbs/softiwarp/proto/growing_ring.h"

namespace sdp::iwarp {

inline constexpr uint32_t kMarkerSize = 4;
inline constexpr uint32_t kMarkerInterval = 512;
inline constexpr uint32_t kCleanInterval = kMarkerInterval - kMarkerSize;

// Returns the number of markers among `clean` octets that start at clean position `phase`.
[[nodiscard]] constexpr uint32_t MarkersIn(uint32_t phase, uint32_t clean) {
  const auto up_to = [](uint32_t n) { return (n + kCleanInterval - 1) / kCleanInterval; };
  return up_to(phase + clean) - up_to(phase);
}

using MarkerBytes = std::array<std::byte, kMarkerSize>;

// A position in a stream, as the number of clean bytes before the next marker.
class MarkerPhase {
 public:
  // Returns 0 if a marker comes next.
  [[nodiscard]] uint32_t clean_left() const { return clean_left_; }
  void PassMarker() { clean_left_ = kCleanInterval; }
  void PassClean(uint32_t n) { clean_left_ -= n; }

 private:
  friend struct Frozen;

  uint32_t clean_left_ = 0;
};

// For receiving: lets the link's read put the markers elsewhere, so that the targets receive clean bytes.
class MarkerSieve {
 public:
  static constexpr size_t kMaxMarkers = 64;
  static constexpr size_t kMaxParts = 2 * kMaxMarkers + 8;

  // Splits targets (clean) into the parts of one read (raw), at most kMaxParts, for which `parts` has room.
  // Returns their number. If they do not suffice, the rest of the targets is left out.
  size_t Split(std::span<const MutableBytes> targets, std::span<MutableBytes> parts);
  // Call it after `raw` bytes were read into the parts of Split(); returns how many clean ones the targets
  // have.
  size_t HandleRead(size_t raw);
  // Returns the markers read and not yet taken, oldest first.
  GrowingRing<MarkerBytes>& markers() { return markers_; }

 private:
  friend struct Frozen;

  uint32_t phase_ = 0;                            // raw position modulo 512
  std::array<MarkerBytes, kMaxMarkers> fresh_{};  // [0] begins with the octets of an incomplete marker
  GrowingRing<MarkerBytes> markers_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_MARKERS_H_
