// One of a few ways to do the same thing again and again, chosen by the clock: which is fastest depends on the machine, its load and the
// sizes, and nobody can say beforehand. Each way is tried a few times, the best is kept for a while, twice as long each time it wins again,
// and then all are tried once more. A value.
#ifndef SDP_PRELOAD_SOCKET_TIMED_CHOICE_H_
#define SDP_PRELOAD_SOCKET_TIMED_CHOICE_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "preload/socket/clock.h"

namespace sdp::preload {

class TimedChoice {
 public:
  static constexpr uint8_t kMostWays = 3;
  // How often a way is used in a trial. The first uses do not count: what follows a change may suffer from what was before.
  static constexpr uint8_t kTrial = 12;
  static constexpr uint8_t kUncounted = 5;
  // Before the first trial: what has just begun is slow.
  static constexpr uint32_t kWarmUp = 16;
  // Of uses that take so long few are enough, there and here: they are noisy for less of their time, and a trial costs more.
  static constexpr Duration kLong = std::chrono::milliseconds(3);
  static constexpr uint8_t kFew = 5;
  static constexpr uint32_t kShortestStay = 256;
  static constexpr uint32_t kLongestStay = 8192;

  // The way to use now: a number below kMostWays.
  [[nodiscard]] uint8_t way() const { return way_; }
  [[nodiscard]] bool trying() const { return left_ == 0; }
  // From now on between ways of the set `ways` (bit 0: way 0). To begin with, `first`.
  void Begin(uint8_t ways, uint8_t first) {
    ways_ = ways;
    best_ = kMostWays;
    way_ = first;
    uses_ = 0;
    left_ = kWarmUp;
  }
  // way() was used and took so long.
  void Took(Duration time) {
    if (left_ > 0) {
      --left_;
      const bool warm = best_ == kMostWays && time >= kLong && kWarmUp - left_ >= kFew;
      if (warm || left_ == 0) Try();
    } else {
      times_[uses_++] = time;
      if (!enough() && !hopeless()) return;
      const auto uncounted = std::min<uint8_t>(kUncounted, uses_ / 2);
      std::sort(times_.begin() + uncounted, times_.begin() + uses_);
      results_[way_] = times_[(uncounted + uses_) / 2];
      NextWay(way_ + 1);
    }
  }

 private:
  void Try() {
    results_.fill(Duration::max());
    left_ = 0;
    NextWay(0);
  }
  // Half as slow again as another, three times.
  [[nodiscard]] bool hopeless() const {
    if (uses_ < kUncounted + 3) return false;
    const Duration least = *std::min_element(times_.begin() + kUncounted, times_.begin() + uses_);
    const Duration best = *std::min_element(results_.begin(), results_.end());
    return best != Duration::max() && least > best + best / 2;
  }
  [[nodiscard]] bool enough() const {
    return uses_ == kTrial || (uses_ >= kFew && *std::min_element(times_.begin(), times_.begin() + uses_) >= kLong);
  }
  // Goes on with `way` or the next one behind it, or ends the trials.
  void NextWay(uint8_t way) {
    uses_ = 0;
    for (; way < kMostWays; ++way) {
      if ((ways_ & (1u << way)) != 0) {
        way_ = way;
        return;
      }
    }
    const auto fastest = static_cast<uint8_t>(std::min_element(results_.begin(), results_.end()) - results_.begin());
    // What is as good as another is no reason to change.
    const bool stays = best_ < kMostWays && results_[best_] != Duration::max() && results_[best_] <= results_[fastest] + results_[fastest] / 32;
    stay_ = stays ? std::min(stay_ * 2, kLongestStay) : kShortestStay;
    if (!stays) best_ = fastest;
    way_ = best_;
    left_ = stay_;
  }

  std::array<Duration, kTrial> times_{};
  std::array<Duration, kMostWays> results_{};
  uint32_t stay_ = kShortestStay;
  uint32_t left_ = kShortestStay;  // uses before the next trial; 0: one is under way
  uint8_t ways_ = 1;
  uint8_t way_ = 0;
  uint8_t best_ = kMostWays;  // of the last trial, if there was one
  uint8_t uses_ = 0;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_TIMED_CHOICE_H_
