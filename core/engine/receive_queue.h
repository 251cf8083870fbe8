#ifndef SDP_CORE_ENGINE_RECEIVE_QUEUE_H_
#define SDP_CORE_ENGINE_RECEIVE_QUEUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/base/types.h"

namespace sdp::engine {

// Received payload in lent memory, in order, until the application has read it. A small ring that grows while
// the application lags, and shrinks again after a period of little use.
class ReceiveQueue {
 public:
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint64_t held_cost() const { return held_cost_; }
  // Returns true if no lent memory is left, including memory that PollRelease() would give back.
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // Returns true if PollRelease() has work.
  [[nodiscard]] bool has_release() const { return consumed_ != 0; }

  // Adds a message's payload: `pieces` without their first `skip` bytes and without `drop` bytes at the end.
  // At least one byte remains.
  void Push(std::span<const Bytes> pieces, size_t skip, size_t drop, uint64_t token, uint32_t cost);
  // Adds a copy of `bytes`, at least one, as if a message had brought them.
  void PushCopy(Bytes bytes, uint32_t cost);
  // Inserts such a copy before the byte `offset`, which is the first of a message or the next to come.
  void InsertCopy(Bytes bytes, uint64_t offset, uint32_t cost);
  // Copies at most `limit` bytes into `out` and returns how many. Does not copy bytes that already lie in
  // place. With `peek` the bytes stay.
  size_t Read(std::span<const MutableBytes> out, uint64_t limit, bool peek);
  // Returns how many unread bytes the oldest piece of a message has.
  [[nodiscard]] uint32_t oldest_piece() const {
    return size_ == consumed_ ? 0 : slots_[(head_ + consumed_) & (capacity_ - 1)].size;
  }
  // Fills `out`, which is smaller than oldest_piece().
  void ReadWithin(MutableBytes out);
  void DropAll();
  // Copies what is unread of the message with `token`, whose memory its lender needs back. PollRelease() does
  // not return that token any more, unless the message was read before.
  void Keep(uint64_t token);
  // Returns the token of a message that was read or dropped.
  std::optional<uint64_t> PollRelease();
  [[nodiscard]] bool IsConsistent() const;

 private:
  friend struct Frozen;

  struct Piece {
    const std::byte* data = nullptr;
    uint32_t size = 0;
    uint32_t cost = 0;  // of the message, set in its last piece
    uint64_t token = 0;
    bool last = false;   // the message's last piece: its release gives the token back
    bool owned = false;  // lies in owned_, not lent; with the empty pieces before it a whole message
  };

  struct Owned {
    std::unique_ptr<std::byte[]> memory;
    std::unique_ptr<Owned> next;
  };

  // Returns memory that stays until the queue is empty.
  std::byte* Own(size_t size);
  Piece& at(size_t i) { return slots_[(head_ + i) & (capacity_ - 1)]; }
  void PushPiece(const Piece& piece);
  void Resize(uint32_t capacity);
  void Consume(Piece* piece);
  template <typename Archive>
  void Thaw(Archive& ar);  // freeze.cc

  std::unique_ptr<Piece[]> slots_;
  uint32_t capacity_ = 0;  // zero or a power of two
  uint32_t head_ = 0;
  uint32_t size_ = 0;
  uint32_t consumed_ = 0;  // pieces at the front that wait for PollRelease
  uint32_t peak_ = 0;      // the most size_ since it was last zero
  uint64_t bytes_ = 0;
  uint64_t held_cost_ = 0;
  std::unique_ptr<Owned> owned_;  // copies; kept until the queue is empty
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_RECEIVE_QUEUE_H_
