#include "verbs/ibv/send_ring.h"

namespace sdp::ibv {

bool SendRing::Make(Resources& resources, size_t size) {
  memory_ = RegisteredMemory::Make(resources.api, resources.pd, size, IBV_ACCESS_LOCAL_WRITE);
  return memory_ != nullptr;
}

std::byte* SendRing::Take(size_t size) {
  const size_t capacity = memory_->size();
  if (head_ == tail_) head_ = tail_ = (head_ + capacity - 1) / capacity * capacity;  // idle: from the start
  uint64_t start = head_;
  const size_t to_end = capacity - static_cast<size_t>(start % capacity);
  if (size > to_end) start += to_end;
  if (start + size - tail_ > capacity) return nullptr;
  head_ = start + size;
  return memory_->data() + start % capacity;
}

}  // namespace sdp::ibv
