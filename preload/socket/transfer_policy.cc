#include "preload/socket/transfer_policy.h"

#include <algorithm>

#include "preload/socket/options.h"

namespace sdp::preload {
namespace {

constexpr int64_t kMebibyte = 1 << 20;
// A sender waits as long as the peer's reads take, within these bounds for a MiB. A reader that comes late
// counts as one that reads slowly.
constexpr Duration kShortestRead = std::chrono::milliseconds(1);
constexpr Duration kLongestRead = std::chrono::milliseconds(50);
// A sender that found no reader copies its next large writes: one, then twice as many each time.
constexpr uint32_t kMostCopiedInARow = 64;

}  // namespace

void TransferPolicy::Reset(engine::Engine& e, const Connection& connection) {
  traffic_ = {};
  applied_ = TurnTaking::Way::kCopy;
  if (connection.chosen) e.FollowHints(!connection.by_time());
  if (!connection.by_time()) return;
  e.SetSourceThreshold(UINT32_MAX);
  if (e.stats().source_mode == engine::FlowMode::kPipelined) applied_ = TurnTaking::Way::kWrite;
}

void TransferPolicy::BeginTurn(engine::Engine& e, const Connection& connection, Time now) {
  const engine::Stats& stats = e.stats();
  traffic_.Begin({.now = now,
                  .read_bytes_in = stats.read_zcopy_bytes_in,
                  .peer_lends = stats.sink_mode == engine::FlowMode::kPipelined,
                  .tries = connection.by_time(),
                  .connected = connection.connecting});
}

void TransferPolicy::Apply(engine::Engine& e, const Connection& connection) {
  using Way = TurnTaking::Way;
  const Way way = traffic_.way();
  if (connection.by_time()) {
    const engine::FlowMode mode =
        way == Way::kWrite ? engine::FlowMode::kPipelined : engine::FlowMode::kCombined;
    // Not possible while the last change is in flight; the next send tries again.
    if (e.stats().source_mode != mode && !e.ChangeMode(engine::Half::kSource, mode)) return;
    e.SetSourceThreshold(way == Way::kRead ? e.sink_threshold() : UINT32_MAX);
  }
  sinks_missed_ = 0;
  applied_ = way;
}

void TransferPolicy::TimeStream(engine::Engine& e, size_t bytes, const Connection& connection, Clock now) {
  static_assert(kLeastTimed == kWorthRegistering);
  if (!connection.adapter || !connection.free) return;
  stream_timing_.Begin(bytes, now());
  e.SetSourceThreshold(stream_timing_.reads() ? kWorthRegistering : UINT32_MAX);
}

bool TransferPolicy::LendsAhead(engine::Engine& e) {
  const bool lends = traffic_.ShouldLend(e.sink_threshold());
  e.PreferPipelined(lends);
  return lends && e.stats().sink_mode == engine::FlowMode::kPipelined;
}

bool TransferPolicy::TakesCopy() {
  if (copied_in_a_row_ >= copies_wanted_) return false;
  ++copied_in_a_row_;
  return true;
}

void TransferPolicy::NoteLoan(bool missed) {
  copies_wanted_ = missed ? std::clamp<uint32_t>(copies_wanted_ * 2, 1, kMostCopiedInARow) : 0;
  copied_in_a_row_ = 0;
}

Duration TransferPolicy::ReadsExpected(size_t bytes) const {
  return 2 * mebibyte_read_ * static_cast<int64_t>(bytes) / kMebibyte;
}

void TransferPolicy::NoteReads(Duration taken, size_t bytes) {
  const Duration one =
      std::clamp(taken * kMebibyte / static_cast<int64_t>(bytes), kShortestRead, kLongestRead);
  mebibyte_read_ = (3 * mebibyte_read_ + one) / 4;
}

}  // namespace sdp::preload
