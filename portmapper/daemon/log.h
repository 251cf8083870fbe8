// The daemon's log: one line an event on standard error, for people or for programs.
#ifndef SDP_PORTMAPPER_DAEMON_LOG_H_
#define SDP_PORTMAPPER_DAEMON_LOG_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "core/base/types.h"

namespace sdp::pm {

enum class LogLevel : uint8_t { kError, kInfo, kDebug };

// kText: "sdp-pmd: what happened", with the priority in front ("<6>") if the journal reads it. kLogfmt:
// time=2026-11-21T08:00:00.000Z level=info pid=1 msg="what happened". kJson: an object with the same members.
enum class LogFormat : uint8_t { kText, kLogfmt, kJson };

// Before the first log line; info and text by default.
void SetLogLevel(LogLevel level);
void SetLogFormat(LogFormat format);
// The whole line as it is written, its end included. `now` in nanoseconds since 1970; `journal`: see kText.
[[nodiscard]] std::string FormatLogLine(LogFormat format, LogLevel level, std::string_view line, int64_t now,
                                        int pid, bool journal);
[[nodiscard]] bool LogEnabled(LogLevel level);
void WriteLog(LogLevel level, std::string_view line);

// `text` may have several lines, of which each is an event.
void LogLines(LogLevel level, const std::string& text);

template <typename... Args>
void Log(LogLevel level, const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (LogEnabled(level)) WriteLog(level, absl::StrFormat(format, args...));
}

// Keeps what strangers can cause from filling the log: at most `burst` lines in any `period`, the rest is
// counted.
class LogLimiter {
 public:
  explicit LogLimiter(int burst, Duration period = std::chrono::seconds(10))
      : burst_(burst), period_(period) {}

  // True if the line may be written; then *suppressed is how many were not since the last one.
  [[nodiscard]] bool Allow(Time now, uint64_t* suppressed);

 private:
  int burst_;
  Duration period_;
  Time period_start_{};
  int written_ = 0;
  uint64_t suppressed_ = 0;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_LOG_H_
