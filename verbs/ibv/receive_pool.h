// Receive Private Buffers in registered memory. Each is posted, lent to the owner with a message in it, or
// free.
#ifndef SDP_VERBS_IBV_RECEIVE_POOL_H_
#define SDP_VERBS_IBV_RECEIVE_POOL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/base/types.h"
#include "verbs/ibv/ibv_resources.h"

namespace sdp::ibv {

class ReceivePool {
 public:
  // `resources` has a queue pair and outlives the pool.
  ReceivePool(Resources& resources, uint32_t buffer_size)
      : resources_(resources), buffer_size_(buffer_size) {}

  // Posts `count` more buffers; those that the queue has no room for follow as others complete. Returns false
  // if there is no memory, and sets errno.
  bool Post(uint32_t count);
  // Sets the size of the buffers posted from now on, and makes memory for `count` of them. Buffers of another
  // size go back to the system when they come free. Returns false if there is no memory; then nothing has
  // changed.
  bool SetSize(uint32_t bytes, uint32_t count);
  [[nodiscard]] uint32_t buffer_size() const { return buffer_size_; }

  // The work request `id` has completed: returns its buffer, which is the caller's until Free(id); null if
  // no buffer is posted under this id.
  const std::byte* Take(uint64_t id);
  bool Free(uint64_t id);
  // Buffers that are neither posted nor free.
  [[nodiscard]] uint32_t lent() const { return lent_; }
  // Registered now.
  [[nodiscard]] size_t bytes() const;

 private:
  struct Slab {
    std::unique_ptr<RegisteredMemory> memory;
    uint32_t slots = 0;  // in use
  };
  struct Slot {
    std::byte* data;
    uint32_t slab;
    uint32_t size;
    bool posted;
  };

  bool PostWanted();
  bool Grow();
  void PutOutOfUse(uint32_t index);

  Resources& resources_;
  uint32_t buffer_size_;
  uint32_t wanted_ = 0;  // to be posted
  uint32_t posted_ = 0;
  uint32_t lent_ = 0;
  std::vector<Slab> slabs_;
  std::deque<Slot> slots_;
  std::vector<uint32_t> free_;    // indices of slots
  std::vector<uint32_t> unused_;  // indices of slots without memory
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_RECEIVE_POOL_H_
