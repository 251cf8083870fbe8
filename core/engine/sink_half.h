#ifndef SDP_CORE_ENGINE_SINK_HALF_H_
#define SDP_CORE_ENGINE_SINK_HALF_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "core/engine/options.h"
#include "core/engine/receive_queue.h"
#include "core/engine/urgent_data.h"

namespace sdp::engine {

// The half-connection in which we are the Data Sink: received payload until the application reads it, and the
// number of receives that this leaves to post.
class SinkHalf {
 public:
  explicit SinkHalf(const Options& options) : options_(options) {}

  // Takes the payload of a good message: `pieces` after `header` bytes. Returns false if it keeps nothing:
  // the owner then releases the token.
  bool HandlePayload(std::span<const Bytes> pieces, size_t header, uint64_t token, uint32_t cost,
                     bool last_is_urgent);
  size_t Read(std::span<const MutableBytes> out, bool peek);
  // Returns how many bytes the oldest piece of a message has; 0 while urgent data is known.
  [[nodiscard]] uint32_t readable_piece() const { return urgent_.quiet() ? queue_.oldest_piece() : 0; }
  // Read() of `out`, which is smaller than readable_piece().
  void ReadWithin(MutableBytes out) {
    queue_.ReadWithin(out);
    read_bytes_ += out.size();
  }
  // Counts the next `count` bytes of the stream, which were placed where the application wants them.
  void PlacedDirectly(uint64_t count) {
    read_bytes_ += count;
    urgent_.Passed(read_bytes_);
  }
  // Returns true if the next bytes that come are those that the application reads next.
  [[nodiscard]] bool takes_directly() const { return queue_.empty() && !closed_ && urgent_.quiet(); }
  // Takes the next bytes of the stream, placed where the application no longer wants them, for Read().
  void PlacedAside(Bytes bytes);
  // Drops payload that comes from now on.
  void Refuse() { closed_ = true; }
  // Also drops the payload held.
  void Close();
  void DropAll();
  std::optional<uint64_t> PollRelease() { return queue_.PollRelease(); }
  void Keep(uint64_t token) { queue_.Keep(token); }

  [[nodiscard]] bool has_release() const { return queue_.has_release(); }

  // Returns how many receives are posted while nothing is held: after an enlargement (10.6) fewer than
  // before.
  [[nodiscard]] uint32_t Window() const;
  // Returns how many receive Private Buffers should be posted. As many as fit under receive_limit beside the
  // data held, but at least the two that carry no payload (10.5): the peer's messages free those two at once.
  [[nodiscard]] uint32_t PostedTarget() const;
  // Returns how many receive buffers, of at most receive_buffers, fit into `room`; two at least.
  [[nodiscard]] uint32_t BuffersWithin(uint64_t room) const;
  // Returns true if one message more may be held: up to twice receive_limit, because a peer may cause that
  // again and again.
  [[nodiscard]] bool may_exceed_limit() const { return queue_.held_cost() / 2 < options_.receive_limit; }
  [[nodiscard]] uint64_t readable_bytes() const { return queue_.bytes(); }
  // As FIONREAD counts: up to an out-of-line mark.
  [[nodiscard]] uint64_t readable_to_mark() const {
    return urgent_.is_inline() ? readable_bytes() : readable_to_any_mark();
  }
  [[nodiscard]] uint64_t readable_to_any_mark() const {
    const auto mark = urgent_.mark();
    return mark ? std::min(readable_bytes(), *mark - read_bytes_) : readable_bytes();
  }
  [[nodiscard]] bool holds_memory() const { return !queue_.empty(); }
  [[nodiscard]] bool closed() const { return closed_; }
  // Returns true if payload came and was dropped in this object; not part of the session's state.
  [[nodiscard]] bool refused() const { return refused_; }
  // Sets where Out-Of-Band bytes stand from now on, including one that is here and neither taken nor passed.
  void SetUrgentInline(bool value);
  UrgentSink& urgent() { return urgent_; }
  [[nodiscard]] const UrgentSink& urgent() const { return urgent_; }
  [[nodiscard]] bool at_mark() const { return urgent_.at_mark(read_bytes_); }
  [[nodiscard]] bool IsConsistent() const { return queue_.IsConsistent(); }

 private:
  friend struct Frozen;

  const Options& options_;
  ReceiveQueue queue_;
  UrgentSink urgent_;
  uint64_t read_bytes_ = 0;  // position in the stream as the application sees it
  bool closed_ = false;
  bool refused_ = false;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_SINK_HALF_H_
