// Chooses by timing among a few ways to do the same thing again and again. The fastest way depends on the
// machine, its load and the sizes, so it cannot be known beforehand. The uses after a change are slow, and a
// use takes half or twice as long as another. So a trial of some dozen tells good from bad, not good from
// better. All ways are tried, and the best is kept and timed meanwhile. Later the others are tried against
// its figure. A new winner is on probation: if it does not keep its promise, the former way returns. A value;
// guarded by its owner's lock.
#ifndef SDP_PRELOAD_SOCKET_TIMED_CHOICE_H_
#define SDP_PRELOAD_SOCKET_TIMED_CHOICE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "preload/socket/clock.h"

namespace sdp::preload {

class TimedChoice {
 public:
  static constexpr uint8_t kMostWays = 3;
  // Uses before the first trial: what has just begun is slow.
  static constexpr uint32_t kWarmUp = 16;
  // The first uses of a trial do not count, for so many uses or so long: they suffer from the way before.
  static constexpr uint32_t kUncounted = 24;
  static constexpr Duration kSettled = std::chrono::milliseconds(8);
  // Uses timed together. The middle half of them gives the figure, so that outliers do not.
  static constexpr uint32_t kBlock = 32;
  // Of uses that take so long, few are enough, in the warm-up and in a trial. They are less noisy, and a
  // trial costs more.
  static constexpr Duration kLong = std::chrono::milliseconds(3);
  static constexpr uint32_t kFew = 3;
  static constexpr uint32_t kShortestStay = 256;
  static constexpr uint32_t kLongestStay = 8192;
  static constexpr uint32_t kStayGrows = 2;
  // The figure of the kept way is the mean of about so many blocks.
  static constexpr uint32_t kBlocksKept = 8;
  static constexpr uint32_t kProbation = 4;  // blocks

  // Returns the way to use now: a number below kMostWays.
  [[nodiscard]] uint8_t way() const { return way_; }
  [[nodiscard]] bool trying() const { return phase_ == Phase::kTrial; }
  // Chooses from now on among the set `ways` (bit 0: way 0), beginning with `first`.
  void Begin(uint8_t ways, uint8_t first) {
    *this = {};
    ways_ = ways;
    way_ = first;
    phase_ = Phase::kWarmUp;
  }
  // way() was used and took so long.
  void Took(Duration time) {
    const auto taken = static_cast<float>(time.count());
    ++uses_;
    switch (phase_) {
      case Phase::kWarmUp:
        if (uses_ == kWarmUp || (time >= kLong && uses_ >= kFew)) Try(kMostWays);
        break;
      case Phase::kTrial:
        least_ = std::min(least_, taken);
        if (!settled_) {
          settling_ += time;
          settled_ = uses_ >= kUncounted || (settling_ >= kSettled && uses_ >= 2);
        } else {
          block_[in_block_++] = taken;
        }
        if (enough()) {
          EndTrialBlock();
        } else if (hopeless()) {
          in_block_ = 0;
          NextWay(way_ + 1);
        }
        break;
      case Phase::kStay:
        block_[in_block_++] = taken;
        if (in_block_ == kBlock) EndBlock();
        if (uses_ >= stay_) Try(way_);
        break;
    }
  }

 private:
  enum class Phase : uint8_t { kWarmUp, kTrial, kStay };
  static constexpr float kUnknown = std::numeric_limits<float>::max();
  // A trial against a figure of long standing has to show more than noise. A way slower than the best by
  // these factors is hopeless: judged after a glance, after half a block, or for long uses by the first that
  // counts.
  static constexpr float kClearly = 0.95F;
  static constexpr float kAsGood = 0.85F;
  static constexpr float kTwice = 2;
  static constexpr float kHalfMore = 1.5F;
  static constexpr uint32_t kGlance = 8;
  static constexpr uint32_t kLongGlance = 2;
  static constexpr float kQuarterMore = 1.25F;

  // Tries all ways except `kept`, whose figure is known.
  void Try(uint8_t kept) {
    for (uint8_t way = 0; way < kMostWays; ++way) {
      if (way != kept) figures_[way] = kUnknown;
    }
    kept_ = kept;
    in_block_ = 0;
    phase_ = Phase::kTrial;
    NextWay(0);
  }
  [[nodiscard]] bool enough() const {
    const auto is_long = [](float taken) { return taken >= static_cast<float>(kLong.count()); };
    return in_block_ == kBlock ||
           (in_block_ == kFew && std::all_of(block_.begin(), block_.begin() + kFew, is_long));
  }
  [[nodiscard]] bool hopeless() {
    const float best = BestOfOthers();
    if (best == kUnknown) return false;
    const bool is_long = least_ >= static_cast<float>(kLong.count());
    if (uses_ >= (is_long ? kLongGlance : kGlance) && least_ > best * (is_long ? kHalfMore : kTwice))
      return true;
    if (is_long && in_block_ != 0 && least_ > best * kQuarterMore) return true;
    return in_block_ == kBlock / 2 && Figure() > best * kQuarterMore;
  }
  [[nodiscard]] float BestOfOthers() const {
    float best = kUnknown;
    for (uint8_t way = 0; way < kMostWays; ++way) {
      if (way != way_) best = std::min(best, figures_[way]);
    }
    return best;
  }
  // Returns how many blocks a close trial may take: a small part of the uses for which its winner is kept.
  [[nodiscard]] uint32_t most_blocks() const {
    return std::clamp(stay_ / (16 * kBlock), uint32_t{2}, kBlocksKept);
  }
  void EndTrialBlock() {
    const bool few = in_block_ < kBlock;
    const float figure = TakeBlock();
    ++blocks_;
    // The first of several blocks still suffers from the change.
    figures_[way_] =
        blocks_ <= 2 ? figure : figures_[way_] + (figure - figures_[way_]) / static_cast<float>(blocks_ - 1);
    const float ratio = figures_[way_] / BestOfOthers();
    const bool close = ratio > kAsGood && ratio < 1 / kAsGood;
    if (few || !close || blocks_ >= most_blocks()) NextWay(way_ + 1);
  }
  // Continues with `way` or the next possible one, or ends the trials.
  void NextWay(uint8_t way) {
    uses_ = 0;
    blocks_ = 0;
    settled_ = false;
    settling_ = {};
    least_ = kUnknown;
    for (; way < kMostWays; ++way) {
      if ((ways_ & (1u << way)) != 0 && way != kept_) {
        way_ = way;
        return;
      }
    }
    const auto fastest =
        static_cast<uint8_t>(std::min_element(figures_.begin(), figures_.end()) - figures_.begin());
    if (kept_ < kMostWays && (fastest == kept_ || figures_[fastest] > figures_[kept_] * kClearly)) {
      Keep(kept_, std::min(stay_ * kStayGrows, kLongestStay));
    } else {
      before_ = kept_;
      Keep(fastest, kShortestStay);
    }
  }
  void Keep(uint8_t way, uint32_t stay) {
    way_ = way;
    stay_ = stay;
    uses_ = blocks_ = 0;
    phase_ = Phase::kStay;
  }
  void EndBlock() {
    const float figure = TakeBlock();
    blocks_ = std::min(blocks_ + 1, kBlocksKept);
    figures_[way_] =
        blocks_ == 1 ? figure : figures_[way_] + (figure - figures_[way_]) / static_cast<float>(blocks_);
    if (blocks_ != kProbation || before_ == kMostWays) return;
    const uint8_t before = before_;
    before_ = kMostWays;
    if (figures_[way_] > figures_[before]) Keep(before, stay_);
  }
  // Returns the mean of the middle half of the block.
  [[nodiscard]] float Figure() {
    std::sort(block_.begin(), block_.begin() + in_block_);
    const uint32_t out = in_block_ / 4;
    float sum = 0;
    for (uint32_t i = out; i < in_block_ - out; ++i) sum += block_[i];
    return sum / static_cast<float>(in_block_ - 2 * out);
  }
  [[nodiscard]] float TakeBlock() {
    const float figure = Figure();
    in_block_ = 0;
    return figure;
  }

  std::array<float, kBlock> block_{};  // nanoseconds, as all figures are
  std::array<float, kMostWays> figures_{kUnknown, kUnknown, kUnknown};
  float least_ = kUnknown;  // of this way's trial
  Duration settling_{};
  uint32_t uses_ = 0;  // in this phase, of this way
  uint32_t in_block_ = 0;
  uint32_t blocks_ = 0;
  uint32_t stay_ = kShortestStay;
  Phase phase_ = Phase::kStay;
  bool settled_ = false;
  uint8_t ways_ = 1;
  uint8_t way_ = 0;
  uint8_t kept_ = kMostWays;    // the way that the others are tried against, if any
  uint8_t before_ = kMostWays;  // kept before the one on probation, if one is
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_TIMED_CHOICE_H_
