#ifndef SDP_CORE_ENGINE_URGENT_DATA_H_
#define SDP_CORE_ENGINE_URGENT_DATA_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "core/engine/status.h"

namespace sdp::engine {

// Out-Of-Band bytes on their way out (SDP 9.5.3). Positions count the bytes of the stream from its beginning.
class UrgentSource {
 public:
  // The byte at `position`, later than all before, is Out-Of-Band.
  void Mark(uint64_t position) { marks_.push_back(position); }
  // How much of `count` bytes from `start` one message may carry: an Out-Of-Band byte is its message's last,
  // and is announced at most 65535 bytes ahead.
  [[nodiscard]] size_t Limit(uint64_t start, size_t count) const;
  // The flags of the message that carries `count` bytes from `start` (0: none); announces and forgets marks
  // accordingly.
  uint8_t TakeFlags(uint64_t start, size_t count);
  // An announcement is possible now: it should not wait for data.
  [[nodiscard]] bool announcement_due(uint64_t start) const;
  [[nodiscard]] bool empty() const { return marks_.empty(); }
  void Clear() {
    marks_.clear();
    announced_ = 0;
  }

 private:
  friend struct Frozen;

  absl::InlinedVector<uint64_t, 2> marks_;  // not yet sent, in order
  size_t announced_ = 0;                    // of them, OOB_PEND was sent
};

// Out-Of-Band bytes on their way in, with TCP's semantics: one mark, the latest.
class UrgentSink {
 public:
  void set_inline(bool value) { inline_ = value; }
  [[nodiscard]] bool is_inline() const { return inline_; }
  // kBadFlags: OOB_PRES that nothing announced.
  AbortReason HandleFlags(uint8_t flags);
  // The Out-Of-Band byte arrived; it stands, or would stand, at `position` of the stream that the application
  // reads.
  void Arrived(std::byte value, uint64_t position);
  // The byte at the mark may be read by TakeOob().
  [[nodiscard]] bool available() const { return byte_.has_value(); }
  [[nodiscard]] bool pending() const { return announced_ > 0; }
  // How often one was announced to this object; no part of the session's state.
  [[nodiscard]] uint32_t announcements() const { return announcements_; }
  // Announced, or here and neither taken nor read past.
  [[nodiscard]] bool urgent() const { return pending() || available() || (inline_ && mark_); }
  [[nodiscard]] bool at_mark(uint64_t position) const { return mark_ == position; }
  std::optional<std::byte> Take();
  [[nodiscard]] std::optional<std::byte> peek() const { return byte_; }
  // Of the latest, unless it was read past: never before what is read next.
  [[nodiscard]] std::optional<uint64_t> mark() const { return mark_; }
  // How many of `count` bytes from `position` may be read at once: not across the mark.
  [[nodiscard]] uint64_t Limit(uint64_t position, uint64_t count) const;
  // Reading reached `position`.
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
