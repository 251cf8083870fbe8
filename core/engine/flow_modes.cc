#include "core/engine/flow_modes.h"

#include "core/base/check.h"

namespace sdp::engine {
namespace {

// The transitions of figure 26, by the peer that may make them (figure 27).
bool DataSourceMayChange(FlowMode from, FlowMode to) {
  return (from == FlowMode::kCombined && to != FlowMode::kCombined) ||
         (from == FlowMode::kPipelined && to == FlowMode::kCombined);
}
bool DataSinkMayChange(FlowMode from, FlowMode to) {
  return from == FlowMode::kBuffered && to == FlowMode::kCombined;
}

}  // namespace

AbortReason FlowModes::HandleModeChange(const wire::ModeChange& change, bool unanswered) {
  const auto mode = static_cast<FlowMode>(change.mode);
  if (change.receivers_source) {
    if (!DataSinkMayChange(source_, mode)) return AbortReason::kBadModeChange;
    source_ = mode;
    return AbortReason::kNone;
  }
  if (!DataSourceMayChange(sink_, mode)) return AbortReason::kBadModeChange;
  if (mode == FlowMode::kBuffered && unanswered) return AbortReason::kBadModeChange;
  sink_ = mode;
  return AbortReason::kNone;
}

bool FlowModes::Request(Half half, FlowMode mode, uint64_t acknowledged) {
  if (requested_) return false;
  const bool source = half == Half::kSource;
  if (source ? !DataSourceMayChange(source_, mode) || leaving_pipelined(acknowledged)
             : !DataSinkMayChange(sink_, mode)) {
    return false;
  }
  requested_ = wire::ModeChange{.mode = static_cast<uint8_t>(mode), .receivers_source = !source};
  return true;
}

wire::ModeChange FlowModes::TakeChange(uint64_t sent) {
  SDP_CHECK(requested_.has_value());
  const wire::ModeChange change = *requested_;
  requested_.reset();
  const auto mode = static_cast<FlowMode>(change.mode);
  if (change.receivers_source) {
    sink_ = mode;
  } else {
    if (source_ == FlowMode::kPipelined) left_pipelined_ = sent + 1;
    source_ = mode;
  }
  return change;
}

}  // namespace sdp::engine
