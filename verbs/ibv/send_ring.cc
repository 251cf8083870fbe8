#include "verbs/ibv/send_ring.h"

namespace sdp::ibv {

bool SendRing::Make(const Resources& resources, size_t size) {
  memory_ = RegisteredMemory::Make(resources.api, resources.pd, size, IBV_ACCESS_LOCAL_WRITE);
  if (memory_ == nullptr) return false;
  space_ = RingSpace(memory_->size());
  return true;
}

std::byte* SendRing::Take(size_t size) {
  const std::optional<size_t> place = space_.Take(size);
  return place ? memory_->data() + *place : nullptr;
}

}  // namespace sdp::ibv
