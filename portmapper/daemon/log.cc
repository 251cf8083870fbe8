#include "portmapper/daemon/log.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sdp::pm {
namespace {

LogLevel g_level = LogLevel::kInfo;
LogFormat g_format = LogFormat::kText;

const char* NameOf(LogLevel level) {
  return level == LogLevel::kError ? "error" : level == LogLevel::kInfo ? "info" : "debug";
}

// The journal's priorities are syslog's.
const char* PriorityOf(LogLevel level) {
  return level == LogLevel::kError ? "<3>" : level == LogLevel::kInfo ? "<6>" : "<7>";
}

std::string Timestamp(int64_t nanoseconds) {
  const time_t seconds = nanoseconds / 1'000'000'000;
  tm parts{};
  gmtime_r(&seconds, &parts);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1,
                         parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                         nanoseconds / 1'000'000 % 1000);
}

// Between quotation marks, as JSON has it; bytes that are not ASCII pass as they are.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }
void SetLogFormat(LogFormat format) { g_format = format; }

bool LogEnabled(LogLevel level) { return level <= g_level; }

std::string FormatLogLine(LogFormat format, LogLevel level, std::string_view line, int64_t now, int pid,
                          bool journal) {
  switch (format) {
    case LogFormat::kText:
      return absl::StrCat(journal ? PriorityOf(level) : "",
                          "sdp-pmd: ", level == LogLevel::kError ? "error: " : "", std::string(line), "\n");
    case LogFormat::kLogfmt:
      return absl::StrCat("time=", Timestamp(now), " level=", NameOf(level), " pid=", pid,
                          " msg=", Quoted(line), "\n");
    case LogFormat::kJson:
      return absl::StrCat("{\"time\":\"", Timestamp(now), "\",\"level\":\"", NameOf(level),
                          "\",\"pid\":", pid, ",\"msg\":", Quoted(line), "}\n");
  }
  return {};
}

void WriteLog(LogLevel level, std::string_view line) {
  if (!LogEnabled(level)) return;
  static const bool journal = std::getenv("JOURNAL_STREAM") != nullptr;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string text = FormatLogLine(
      g_format, level, line, int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec, getpid(), journal);
  // At once and whole: no other process's line gets in between.
  (void)!write(STDERR_FILENO, text.data(), text.size());
}

void LogLines(LogLevel level, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) WriteLog(level, line);
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
