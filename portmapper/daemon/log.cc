#include "portmapper/daemon/log.h"

#include <cstdio>
#include <utility>

namespace sdp::pm {
namespace {

LogLevel g_level = LogLevel::kInfo;

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }

bool LogEnabled(LogLevel level) { return level <= g_level; }

void WriteLog(LogLevel level, std::string_view line) {
  if (!LogEnabled(level)) return;
  std::fprintf(stderr, "sdp-pmd: %s%.*s\n", level == LogLevel::kError ? "error: " : "",
               static_cast<int>(line.size()), line.data());
}

bool LogLimiter::Allow(Time now, uint64_t* suppressed) {
  if (now - period_start_ >= period_) {
    period_start_ = now;
    written_ = 0;
  }
  if (written_ >= burst_) {
    ++suppressed_;
    return false;
  }
  ++written_;
  *suppressed = std::exchange(suppressed_, 0);
  return true;
}

}  // namespace sdp::pm
