#ifndef SDP_CORE_ENGINE_BUFFER_RESIZING_H_
#define SDP_CORE_ENGINE_BUFFER_RESIZING_H_

#include <cstdint>

#include "core/engine/options.h"
#include "core/engine/status.h"

namespace sdp::engine {

// The size of receive Private Buffers while the connection lives (SDP 10.6): the peer asks for other ones of
// ours, we ask for other ones of the peer's.
class BufferResizing {
 public:
  explicit BufferResizing(uint32_t own_size) : own_size_(own_size) {}

  // --- the peer asks
  // What a ChRcvBuf makes of our buffers, of which `posted` wait; at most `limit`. `mutual`: it was sent
  // before ours arrived, so that the accepting peer disregards it (10.6.1). The new size for buffers posted
  // from now on goes to `size`.
  AbortReason HandleChRcvBuf(uint32_t desired, Role role, bool mutual, uint32_t limit, uint32_t posted,
                             uint32_t* size);
  // There is no memory for that: the answer names the original size.
  void Refused() { old_left_ = 0; }
  // Options::receive_limit as it was before our buffers were enlarged, until the owner has found memory for
  // them.
  void set_limit_before(uint32_t bytes) { limit_before_ = bytes; }
  [[nodiscard]] uint32_t limit_before() const { return limit_before_; }
  // A message arrived, and took the oldest buffer.
  void MessageReceived() { old_left_ -= old_left_ != 0 ? 1 : 0; }
  [[nodiscard]] bool ack_due() const { return answering_ && old_left_ == 0; }
  void AckTaken(uint32_t size) {
    answering_ = false;
    own_size_ = size;
  }
  // Our size for what depends on it at the peer, until it has been told (10.6).
  [[nodiscard]] uint32_t own_size() const { return own_size_; }

  // --- we ask
  // False if we may not: one is unanswered, the size is the one that is, or that direction was refused.
  bool Ask(uint32_t size, uint32_t current);
  // Not while the peer waits for an answer: it could not tell that from a crossing.
  [[nodiscard]] bool ask_due() const { return asked_ != 0 && !outstanding_ && !answering_; }
  // ChRcvBuf leaves as message number `message`. The size that holds from now on; `current` is what held.
  uint32_t AskTaken(uint64_t message, uint32_t current);
  [[nodiscard]] uint32_t asked() const { return asked_; }
  [[nodiscard]] bool outstanding() const { return outstanding_; }
  [[nodiscard]] uint64_t asked_in() const { return asked_in_; }
  AbortReason HandleChRcvBufAck(uint32_t actual);

 private:
  friend struct Frozen;

  uint64_t asked_in_ = 0;
  uint32_t own_size_;
  uint32_t limit_before_ = 0;
  uint32_t old_left_ = 0;  // buffers of the old size that are still posted
  uint32_t asked_ = 0;     // 0: nothing
  uint32_t before_ = 0;    // the peer's size when we first asked for it; 0: nothing was asked yet
  bool answering_ = false;
  bool outstanding_ = false;
  bool no_larger_ = false, no_smaller_ = false;  // refused once, for good
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_BUFFER_RESIZING_H_
