#include "preload/socket/message_dump.h"

#include <time.h>

#include <algorithm>

#include "preload/stats_message_text.h"

namespace sdp::preload {

void LogRecentMessages(LogLevel level, const stats::MessageRecorder& recorder) {
  if (!LogEnabled(level)) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto now_ns = static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  // In the order noted: where nobody traced, times are coarse.
  uint64_t time_ns = 0;
  for (const stats::MessageNote& note : recorder.Recent()) {
    const stats::MessageText text = stats::ToText(note);
    time_ns = std::max(time_ns, note.time_ns);
    const double ago = static_cast<double>(now_ns - static_cast<int64_t>(time_ns)) / 1e9;
    LogLine(level, "  %.3f s before: %s %s %s", ago, note.direction == stats::NoteDirection::kOut ? "sent" : "got", text.name.c_str(),
            text.details.c_str());
  }
}

}  // namespace sdp::preload
