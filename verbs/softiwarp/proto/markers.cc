#include "verbs/softiwarp/proto/markers.h"

#include <algorithm>

namespace sdp::iwarp {

size_t MarkerSieve::Split(std::span<const MutableBytes> targets, std::span<MutableBytes> parts) {
  size_t count = 0;
  size_t marker = 0;
  uint32_t phase = phase_;
  for (MutableBytes target : targets) {
    while (!target.empty()) {
      if (phase < kMarkerSize) {
        if (marker == fresh_.size()) return count;
        parts[count++] = MutableBytes(fresh_[marker++]).subspan(phase);
        phase = kMarkerSize;
      }
      const size_t n = std::min<size_t>(target.size(), kMarkerInterval - phase);
      parts[count++] = target.first(n);
      target = target.subspan(n);
      phase = (phase + static_cast<uint32_t>(n)) % kMarkerInterval;
    }
  }
  return count;
}

size_t MarkerSieve::HandleRead(size_t raw) {
  size_t clean = 0;
  size_t marker = 0;
  while (raw > 0) {
    const bool in_marker = phase_ < kMarkerSize;
    const auto n =
        static_cast<uint32_t>(std::min<size_t>(raw, (in_marker ? kMarkerSize : kMarkerInterval) - phase_));
    phase_ = (phase_ + n) % kMarkerInterval;
    raw -= n;
    if (!in_marker) {
      clean += n;
    } else if (phase_ == kMarkerSize) {
      markers_.PushBack(fresh_[marker++]);
    }
  }
  if (phase_ > 0 && phase_ < kMarkerSize) fresh_[0] = fresh_[marker];
  return clean;
}

}  // namespace sdp::iwarp
