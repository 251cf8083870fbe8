// Which part of a ring is taken: pieces that are freed in the order they were taken.
#ifndef SDP_VERBS_IBV_RING_SPACE_H_
#define SDP_VERBS_IBV_RING_SPACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sdp::ibv {

class RingSpace {
 public:
  explicit RingSpace(size_t capacity) : capacity_(capacity) {}

  // Where `size` bytes in one piece begin, nullopt when so much is not free now. size <= largest().
  std::optional<size_t> Take(size_t size);
  // The end of what was taken so far: FreeUpTo() it when the device is done with all of that.
  [[nodiscard]] uint64_t mark() const { return head_; }
  // One from before the ring was idle, and begun anew, frees nothing more.
  void FreeUpTo(uint64_t mark) { tail_ = std::max(tail_, mark); }

  [[nodiscard]] size_t capacity() const { return capacity_; }
  // Half of the ring: the wrap may waste as much.
  [[nodiscard]] size_t largest() const { return capacity_ / 2; }

 private:
  size_t capacity_;
  uint64_t head_ = 0;  // counted on for ever; the place is the remainder
  uint64_t tail_ = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_RING_SPACE_H_
