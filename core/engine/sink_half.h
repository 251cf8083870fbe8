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

// The half-connection in which we are the Data Sink: received payload until the application reads it, and how
// much memory we answer for meanwhile.
class SinkHalf {
 public:
  explicit SinkHalf(const Options& options) : options_(options) {}

  // Payload of a good message: `pieces` after `header` bytes. Returns false if nothing of it is kept: the
  // owner releases the token.
  bool HandlePayload(std::span<const Bytes> pieces, size_t header, uint64_t token, uint32_t cost,
                     bool last_is_urgent);
  size_t Read(std::span<const MutableBytes> out, bool peek);
  // The next `count` bytes of the stream were placed where the application wants them.
  void PlacedDirectly(uint64_t count) {
    read_bytes_ += count;
    urgent_.Passed(read_bytes_);
  }
  // The next bytes of the stream were placed where the application does not want them any more: to be read.
  void PlacedAside(Bytes bytes);
  // Payload that comes from now on is dropped.
  void Refuse() { closed_ = true; }
  // What is held, too.
  void Close();
  void DropAll();
  std::optional<uint64_t> PollRelease() { return queue_.PollRelease(); }

  [[nodiscard]] bool has_release() const { return queue_.has_release(); }

  // How many are posted while nothing is held: after an enlargement (10.6) fewer than there were.
  [[nodiscard]] uint32_t Window() const;
  // How many receive Private Buffers should be posted: as many as fit under receive_limit beside what is
  // held, but always the two that carry no payload (10.5), which the peer's messages give back at once.
  [[nodiscard]] uint32_t PostedTarget() const;
  // Whether one message more than that may be taken: up to twice receive_limit, since a peer may bring it
  // about again and again.
  [[nodiscard]] bool may_exceed_limit() const { return queue_.held_cost() / 2 < options_.receive_limit; }
  [[nodiscard]] uint64_t readable_bytes() const { return queue_.bytes(); }
  // As FIONREAD has it: up to an out-of-line mark.
  [[nodiscard]] uint64_t readable_to_mark() const {
    return urgent_.is_inline() ? readable_bytes() : readable_to_any_mark();
  }
  [[nodiscard]] uint64_t readable_to_any_mark() const {
    const auto mark = urgent_.mark();
    return mark ? std::min(readable_bytes(), *mark - read_bytes_) : readable_bytes();
  }
  [[nodiscard]] bool holds_memory() const { return !queue_.empty(); }
  [[nodiscard]] bool closed() const { return closed_; }
  // Payload came and was dropped, to this object; no part of the session's state.
  [[nodiscard]] bool refused() const { return refused_; }
  // Where Out-Of-Band bytes stand from now on; one that is here and neither taken nor passed, too.
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
