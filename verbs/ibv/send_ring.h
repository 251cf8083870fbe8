// A ring of registered memory that outgoing messages are copied into, and that is freed in the order taken.
#ifndef SDP_VERBS_IBV_SEND_RING_H_
#define SDP_VERBS_IBV_SEND_RING_H_

#include <cstdint>
#include <memory>

#include "verbs/ibv/ibv_resources.h"
#include "verbs/ibv/ring_space.h"

namespace sdp::ibv {

class SendRing {
 public:
  // Returns false if memory is lacking, and sets errno.
  bool Make(const Resources& resources, size_t size);

  // Takes `size` bytes in one piece, at most largest(); returns null if that much is not free now.
  std::byte* Take(size_t size);
  [[nodiscard]] uint64_t mark() const { return space_.mark(); }
  void FreeUpTo(uint64_t mark) { space_.FreeUpTo(mark); }

  [[nodiscard]] size_t size() const { return memory_->size(); }
  [[nodiscard]] size_t largest() const { return space_.largest(); }
  [[nodiscard]] uint32_t key() const { return memory_->key(); }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(memory_->data()); }

 private:
  std::unique_ptr<RegisteredMemory> memory_;
  RingSpace space_{0};
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_SEND_RING_H_
