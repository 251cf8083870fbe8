#ifndef SDP_CORE_ENGINE_URGENT_DATA_H_
#define SDP_CORE_ENGINE_URGENT_DATA_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "core/engine/status.h"

namespace sdp::engine {

// Out-Of-Band bytes that we send (SDP 9.5.3). Positions count the bytes of the stream from its beginning.
class UrgentSource {
 public:
  // Marks the byte at `position` as Out-Of-Band; it is later than all marks before.
  void Mark(uint64_t position) { marks_.push_back(position); }
  // Returns how many of `count` bytes from `start` one message may carry. An Out-Of-Band byte is the last of
  // its message, and is announced at most 65535 bytes ahead.
  [[nodiscard]] size_t Limit(uint64_t start, size_t count) const;
  // Returns the flags of the message that carries `count` bytes (maybe 0) from `start`. Announces and forgets
  // marks accordingly.
  uint8_t TakeFlags(uint64_t start, size_t count);
  // Returns true if an announcement is possible now: it should not wait for data.
  [[nodiscard]] bool announcement_due(uint64_t start) const;
  [[nodiscard]] bool empty() const { return marks_.empty(); }
  void Clear() {
    marks_.clear();
    announced_ = 0;
  }

 private:
  friend struct Frozen;

  absl::InlinedVector<uint64_t, 2> marks_;  // not yet sent, in order
  size_t announced_ = 0;                    // how many of these OOB_PEND has announced
};

// Out-Of-Band bytes that the peer sends, with TCP's semantics: one mark, the latest.
class UrgentSink {
 public:
  void set_inline(bool value) { inline_ = value; }
  [[nodiscard]] bool is_inline() const { return inline_; }
  // Returns kBadFlags for an OOB_PRES without an announcement.
  AbortReason HandleFlags(uint8_t flags);
  // Takes an Out-Of-Band byte that arrived. In the stream that the application reads it stands, or would
  // stand, at `position`.
  void Arrived(std::byte value, uint64_t position);
  // Returns true if TakeOob() has a byte.
  [[nodiscard]] bool available() const { return byte_.has_value(); }
  [[nodiscard]] bool pending() const { return announced_ > 0; }
  // Returns true if nothing is known of any byte.
  [[nodiscard]] bool quiet() const { return announced_ == 0 && !mark_ && !byte_; }
  // Returns how many bytes were announced to this object; not part of the session's state.
  [[nodiscard]] uint32_t announcements() const { return announcements_; }
  // Returns true if a byte was announced, or is here and neither taken nor read past.
  [[nodiscard]] bool urgent() const { return pending() || available() || (inline_ && mark_); }
  [[nodiscard]] bool at_mark(uint64_t position) const { return mark_ == position; }
  std::optional<std::byte> Take();
  [[nodiscard]] std::optional<std::byte> peek() const { return byte_; }
  // Returns the position of the latest byte, unless it was read past: never before the next byte to read.
  [[nodiscard]] std::optional<uint64_t> mark() const { return mark_; }
  // Returns how many of `count` bytes from `position` one read may take: none beyond the mark.
  [[nodiscard]] uint64_t Limit(uint64_t position, uint64_t count) const;
  // Notes that reading has reached `position`.
  void Passed(uint64_t position);

 private:
  friend struct Frozen;

  bool inline_ = false;
  uint32_t announced_ = 0;
  uint32_t announcements_ = 0;
  std::optional<uint64_t> mark_;
  std::optional<std::byte> byte_;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_URGENT_DATA_H_
