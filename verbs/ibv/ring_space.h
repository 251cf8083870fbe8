// Which part of a ring of bytes is taken. Pieces are freed in the order they were taken. The owner has the
// memory.
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

  // Takes `size` bytes in one piece, at most largest(), and returns their offset; nullopt if that much is not
  // free now.
  std::optional<size_t> Take(size_t size);
  // Returns the end of what was taken so far. Pass it to FreeUpTo() when the device is done with all of it.
  [[nodiscard]] uint64_t mark() const { return head_; }
  // Frees up to a mark. A mark from before the ring was idle frees nothing.
  void FreeUpTo(uint64_t mark) { tail_ = std::max(tail_, mark); }

  [[nodiscard]] size_t capacity() const { return capacity_; }
  // Returns half of the ring, because the wrap may waste as much.
  [[nodiscard]] size_t largest() const { return capacity_ / 2; }

 private:
  size_t capacity_;
  uint64_t head_ = 0;  // only grows; its remainder by capacity_ is the offset
  uint64_t tail_ = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_RING_SPACE_H_
