#ifndef SDP_CORE_BASE_TYPES_H_
#define SDP_CORE_BASE_TYPES_H_

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace sdp {

// A number with a meaning of its own: StrongInts of different tags do not mix. There is no arithmetic, only
// comparison. An owner that computes with the number takes `.value()` and says why.
template <typename Tag, typename Rep>
class StrongInt {
 public:
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(StrongInt, StrongInt) = default;

 private:
  Rep value_ = 0;
};

// Steering Tag: names a memory region to the peer (DDP, RFC 5041 section 3). 32 bits, as on the wire.
using STag = StrongInt<struct STagTag, uint32_t>;
// SDP message sequence number (SDP 6.1.5). Wraps from 0xFFFFFFFF to 0: compare with SerialLess.
using MSeq = StrongInt<struct MSeqTag, uint32_t>;
// Identifies a work request between its poster and the receiver of its completion. The RNIC does not
// interpret the number.
using WorkId = StrongInt<struct WorkIdTag, uint64_t>;

// Monotonic time as the owner of an engine sees it. An engine never reads a clock: its owner passes the time.
struct EngineClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  static constexpr bool is_steady = true;
};
using Duration = std::chrono::nanoseconds;
using Time = std::chrono::time_point<EngineClock, Duration>;
inline constexpr Time kNever = Time::max();

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline uint64_t TotalSize(std::span<const Bytes> parts) {
  uint64_t size = 0;
  for (const Bytes& part : parts) size += part.size();
  return size;
}

// a < b in 32-bit serial arithmetic (RFC 1982): true while b is at most 2^31 - 1 ahead of a.
constexpr bool SerialLess(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }
constexpr bool SerialLess(MSeq a, MSeq b) { return SerialLess(a.value(), b.value()); }

}  // namespace sdp

template <typename Tag, typename Rep>
struct std::hash<sdp::StrongInt<Tag, Rep>> {
  size_t operator()(sdp::StrongInt<Tag, Rep> v) const noexcept { return std::hash<Rep>()(v.value()); }
};

#endif  // SDP_CORE_BASE_TYPES_H_
