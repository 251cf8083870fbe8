// When the log is to hear of something that strangers can cause as often as they like (SDP 15.2.1): at once
// when it begins, and then once in a period while it goes on, with how often it happened since the line
// before. The last line comes within a period of the end, so that none is forgotten.
#ifndef SDP_PORTMAPPER_ENGINE_ALARM_H_
#define SDP_PORTMAPPER_ENGINE_ALARM_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/base/types.h"

namespace sdp::pm {

class Alarm {
 public:
  static constexpr Duration kPeriod = std::chrono::minutes(1);

  struct Line {
    bool begins = false;  // after a period without any
    uint64_t since = 0;   // how often since the line before
  };

  // `count`: how often until now; does not go back. A line, if one is due.
  [[nodiscard]] std::optional<Line> HandleCount(uint64_t count, Time now) {
    seen_ = count;
    if (count == reported_ || now < due_) return std::nullopt;
    const Line line{.begins = quiet_ || now >= due_ + kPeriod, .since = count - reported_};
    reported_ = count;
    due_ = now + kPeriod;
    quiet_ = false;
    return line;
  }
  // HandleCount has a line to give from here on; kNever if it has none.
  [[nodiscard]] Time NextTimeout() const { return seen_ == reported_ ? kNever : due_; }

 private:
  uint64_t seen_ = 0;
  uint64_t reported_ = 0;
  Time due_{};
  bool quiet_ = true;  // there was no line yet
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_ALARM_H_
