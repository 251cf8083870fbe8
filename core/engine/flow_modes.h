#ifndef SDP_CORE_ENGINE_FLOW_MODES_H_
#define SDP_CORE_ENGINE_FLOW_MODES_H_

#include <cstdint>
#include <optional>

#include "core/engine/status.h"
#include "core/wire/headers.h"

namespace sdp::engine {

// The Flow Control Mode of both half-connections (SDP 12, figures 26 and 27), for the Mode Master and the
// slave of each.
class FlowModes {
 public:
  [[nodiscard]] FlowMode source() const { return source_; }  // where we are the Data Source
  [[nodiscard]] FlowMode sink() const { return sink_; }

  // Slave: the peer changes a mode. Returns kBadModeChange unless figure 26 has the arrow and figure 27 makes
  // the peer its master. `unanswered`: a SrcAvail of the peer's waits for an answer, which forbids Buffered
  // Mode (12.1).
  AbortReason HandleModeChange(const wire::ModeChange& change, bool unanswered);

  // Master: requests a change of the half-connection in which we are `half`. Returns false if we may not make
  // it, or not now.
  bool Request(Half half, FlowMode mode, uint64_t acknowledged);
  [[nodiscard]] bool change_due() const { return requested_.has_value(); }
  [[nodiscard]] bool buffered_due() const {
    return source_change_due() && requested_->mode == wire::ModeChange::kBuffered;
  }
  // Returns true if a change is due in the half-connection in which we are the Data Source.
  [[nodiscard]] bool source_change_due() const { return requested_ && !requested_->receivers_source; }
  // Takes the requested ModeChange, which leaves now after `sent` other messages. The new mode holds from now
  // on.
  wire::ModeChange TakeChange(uint64_t sent);

  // 12.4: after we left Pipelined Mode the peer may not know it yet: its SinkAvails are then late, not wrong.
  [[nodiscard]] uint64_t left_pipelined() const { return left_pipelined_; }
  [[nodiscard]] bool leaving_pipelined(uint64_t acknowledged) const { return acknowledged < left_pipelined_; }

 private:
  friend struct Frozen;

  FlowMode source_ = FlowMode::kCombined;
  FlowMode sink_ = FlowMode::kCombined;
  std::optional<wire::ModeChange> requested_;
  uint64_t left_pipelined_ = 0;  // messages sent, including the ModeChange
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_FLOW_MODES_H_
