#include "verbs/ibv/ring_space.h"

namespace sdp::ibv {

std::optional<size_t> RingSpace::Take(size_t size) {
  if (head_ == tail_)
    head_ = tail_ = (head_ + capacity_ - 1) / capacity_ * capacity_;  // idle: begin at the start
  uint64_t start = head_;
  const size_t to_end = capacity_ - static_cast<size_t>(start % capacity_);
  if (size > to_end) start += to_end;
  if (start + size - tail_ > capacity_) return std::nullopt;
  head_ = start + size;
  return static_cast<size_t>(start % capacity_);
}

}  // namespace sdp::ibv
