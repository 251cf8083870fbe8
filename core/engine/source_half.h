#ifndef SDP_CORE_ENGINE_SOURCE_HALF_H_
#define SDP_CORE_ENGINE_SOURCE_HALF_H_

#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "core/engine/action.h"
#include "core/engine/send_buffer.h"
#include "core/engine/urgent_data.h"

namespace sdp::engine {

// The half-connection in which we are the Data Source: the application's bytes on their way into Data
// messages by Bcopy (SDP 9.1). Bytes that credit lets leave at once are staged: referenced in the
// application's memory. The rest may be copied into the send buffer.
class SourceHalf {
 public:
  explicit SourceHalf(uint32_t send_limit) : buffer_(send_limit), send_limit_(send_limit) {}

  struct Taken {
    size_t bytes = 0;
    size_t copied = 0;  // of these, copied into the buffer
  };
  // Takes bytes of `data`. `capacity`: payload of one message; `messages`: how many with payload credit
  // allows now; `small`: the longest rest that is copied without `keep_all`; `ahead`: bytes that leave in
  // another way before these.
  Taken Send(std::span<const Bytes> data, uint32_t capacity, uint32_t messages, size_t small, bool keep_all,
             bool out_of_band, uint64_t ahead);
  // Takes the payload of the next Data message, at most `capacity` bytes, staged bytes first. Sets the pieces
  // of `out`, and returns the size.
  size_t NextPayload(uint32_t capacity, PostSend* out, uint8_t* flags);
  // Adds bytes that have to follow, beyond the limit if necessary: last, or first.
  void Keep(Bytes data) { buffer_.AppendAll(data); }
  void KeepFirst(Bytes data) { buffer_.PrependAll(data); }
  // Counts bytes of the stream that have left in another way.
  void TakenDirectly(uint64_t count) { sent_bytes_ += count; }
  [[nodiscard]] bool has_urgent() const { return !urgent_.empty(); }
  // Begins an input or command: memory that earlier actions referenced is free.
  void Reclaim();
  void Clear();
  void TrimBuffer() { buffer_.Trim(); }

  [[nodiscard]] bool has_staged() const { return staged_bytes_ != 0; }
  [[nodiscard]] uint64_t pending_bytes() const { return staged_bytes_ + buffer_.size(); }
  [[nodiscard]] const SendBuffer& buffer() const { return buffer_; }
  // Returns true if there is room worth waking a writer for: a third of the buffer.
  [[nodiscard]] bool has_room() const { return buffer_.room() != 0 && buffer_.room() >= send_limit_ / 3; }
  // Returns true if all bytes have left and no writer waits.
  [[nodiscard]] bool idle() const {
    return staged_bytes_ == 0 && buffer_.size() == 0 && stall_ == Stall::kNone && urgent_.empty();
  }
  // Counts `size` bytes, the whole of a Send(), that leave in a message at once.
  void SentDirectly(uint32_t size) {
    sent_bytes_ += size;
    writer_expected_ = false;
  }
  // Returns true if a message without payload may carry an OOB_PEND now; TakeAnnouncement() takes it.
  [[nodiscard]] bool announcement_due() const { return urgent_.announcement_due(sent_bytes_); }
  uint8_t TakeAnnouncement() { return urgent_.TakeFlags(sent_bytes_, 0); }
  // What the writer waits for after a Send that was not taken whole, until a later Send is.
  enum class Stall : uint8_t { kNone, kCredit, kRoom };
  [[nodiscard]] Stall stall() const { return stall_; }
  void ClearStall() { stall_ = Stall::kNone; }
  // Returns true after such a Send even when the stall is over: the writer is expected back.
  [[nodiscard]] bool writer_expected() const { return writer_expected_; }
  void ForgetWriter() { writer_expected_ = false; }
  [[nodiscard]] bool IsConsistent() const;

 private:
  friend struct Frozen;

  size_t Stage(std::span<const Bytes> data, uint32_t capacity, uint32_t messages, size_t limit);
  size_t TakeStaged(size_t count, PostSend* out);

  SendBuffer buffer_;
  uint32_t send_limit_;
  Stall stall_ = Stall::kNone;
  bool writer_expected_ = false;
  absl::InlinedVector<Bytes, 2> staged_;
  size_t staged_next_ = 0;  // index into staged_
  size_t staged_bytes_ = 0;
  uint64_t sent_bytes_ = 0;  // bytes of the stream that left in messages
  UrgentSource urgent_;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_SOURCE_HALF_H_
