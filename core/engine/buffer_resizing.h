#ifndef SDP_CORE_ENGINE_BUFFER_RESIZING_H_
#define SDP_CORE_ENGINE_BUFFER_RESIZING_H_

#include <cstdint>

#include "core/engine/options.h"
#include "core/engine/status.h"

namespace sdp::engine {

// Resizing of receive Private Buffers during the connection (SDP 10.6), in both directions: the peer asks for
// another size of ours, and we ask for another size of the peer's.
class BufferResizing {
 public:
  explicit BufferResizing(uint32_t own_size) : own_size_(own_size) {}

  // --- the peer asks
  // Handles a ChRcvBuf, which asks for `desired` bytes; `posted` of our buffers wait, and `limit` is the
  // most. `mutual`: the peer sent it before ours arrived, so that the accepting peer disregards it (10.6.1).
  // Stores the size of buffers posted from now on in `size`.
  AbortReason HandleChRcvBuf(uint32_t desired, Role role, bool mutual, uint32_t limit, uint32_t posted,
                             uint32_t* size);
  // Notes that memory for that is lacking: the answer names the original size.
  void Refused() { old_left_ = 0; }
  // Keeps Options::receive_limit as it was before our buffers were enlarged, until the owner has found
  // memory.
  void set_limit_before(uint32_t bytes) { limit_before_ = bytes; }
  [[nodiscard]] uint32_t limit_before() const { return limit_before_; }
  // Notes that a message arrived, and took the oldest buffer.
  void MessageReceived() { old_left_ -= old_left_ != 0 ? 1 : 0; }
  [[nodiscard]] bool ack_due() const { return answering_ && old_left_ == 0; }
  void AckTaken(uint32_t size) {
    answering_ = false;
    own_size_ = size;
  }
  // Returns our size as far as the peer knows it, for everything that depends on it at the peer (10.6).
  [[nodiscard]] uint32_t own_size() const { return own_size_; }

  // --- we ask
  // Returns false if we may not ask: a request is unanswered, the size is the current one, or the peer has
  // refused that direction.
  bool Ask(uint32_t size, uint32_t current);
  // Not while the peer waits for an answer: the peer could not tell our request from one that crosses its
  // own.
  [[nodiscard]] bool ask_due() const { return asked_ != 0 && !outstanding_ && !answering_; }
  // Returns true if nothing of a change is due, or waits for messages.
  [[nodiscard]] bool at_rest() const { return !ask_due() && !answering_ && old_left_ == 0; }
  // Takes the ChRcvBuf that leaves as message number `message`. Returns the size that holds from now on;
  // `current` is the size before.
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
  uint32_t asked_ = 0;     // the size asked for; 0: none
  uint32_t before_ = 0;    // the peer's size before we asked; 0: no request
  bool answering_ = false;
  bool outstanding_ = false;
  bool no_larger_ = false, no_smaller_ = false;  // refused once, for good
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_BUFFER_RESIZING_H_
