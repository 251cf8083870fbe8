// Registered memory that outgoing messages are copied into: a ring, freed in the order it was taken.
#ifndef SDP_VERBS_IBV_SEND_RING_H_
#define SDP_VERBS_IBV_SEND_RING_H_

#include <cstdint>
#include <memory>

#include "verbs/ibv/ibv_resources.h"

namespace sdp::ibv {

class SendRing {
 public:
  // False: no memory, errno tells.
  bool Make(Resources& resources, size_t size);

  // `size` bytes in one piece, null when so much is not free now. size <= largest().
  std::byte* Take(size_t size);
  // The end of what was taken so far: FreeUpTo() it when the device is done with all of that.
  [[nodiscard]] uint64_t mark() const { return head_; }
  void FreeUpTo(uint64_t mark) { tail_ = mark; }

  [[nodiscard]] size_t size() const { return memory_->size(); }
  // Half of the ring: the wrap may waste as much.
  [[nodiscard]] size_t largest() const { return memory_->size() / 2; }
  [[nodiscard]] uint32_t key() const { return memory_->key(); }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(memory_->data()); }

 private:
  std::unique_ptr<RegisteredMemory> memory_;
  uint64_t head_ = 0;  // counted on for ever; the place is the remainder
  uint64_t tail_ = 0;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_SEND_RING_H_
