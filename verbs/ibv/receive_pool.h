// Receive Private Buffers of one connection, in registered memory. Each buffer is posted, lent to the owner
// with a message in it, or free.
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

  // Posts `count` more buffers. Buffers without room in the queue follow as others complete. Returns false if
  // memory is lacking, and sets errno.
  bool Post(uint32_t count);
  // Sets the size of the buffers posted from now on, and makes memory for `count` of them. Buffers of another
  // size return to the system when they become free. Returns false, with nothing changed, if memory is
  // lacking.
  bool SetSize(uint32_t bytes, uint32_t count);
  [[nodiscard]] uint32_t buffer_size() const { return buffer_size_; }

  // Takes the buffer of the completed work request `id`. The caller has it until Free(id). Returns null if no
  // buffer is posted under this id.
  const std::byte* Take(uint64_t id);
  bool Free(uint64_t id);
  // Returns the number of buffers that are neither posted nor free.
  [[nodiscard]] uint32_t lent() const { return lent_; }
  // Returns the number of bytes registered now.
  [[nodiscard]] size_t bytes() const;

 private:
  struct Slab {
    std::unique_ptr<RegisteredMemory> memory;
    uint32_t slots = 0;  // slots in use
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
  uint32_t wanted_ = 0;  // buffers still to post
  uint32_t posted_ = 0;
  uint32_t lent_ = 0;
  std::vector<Slab> slabs_;
  std::deque<Slot> slots_;
  std::vector<uint32_t> free_;    // indices of slots
  std::vector<uint32_t> unused_;  // indices of slots without memory
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_RECEIVE_POOL_H_
