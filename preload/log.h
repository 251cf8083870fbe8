// The log: one line per event that a user may ask about, "sdp[PID]: text". Thread-safe; keeps errno, makes
// only real system calls, and never blocks the program on a full pipe.
#ifndef SDP_PRELOAD_LOG_H_
#define SDP_PRELOAD_LOG_H_

#include "preload/config.h"

namespace sdp::preload {

bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Notes at the program's start what standard error is; log lines for standard error go only there. If the
// program closes it or puts another file at its number, lines are dropped: the number may be a data file or a
// connection by then. Lines are also dropped if `is_managed` says that the number is a managed socket.
void NoteStandardError(bool (*is_managed)(int fd) = nullptr);

// Call before a seccomp filter is set: behind it the library cannot ask how long a file may become.
void PrepareLogForConfinement();

// The configuration has changed: lines go to the new log file from now on.
void FollowLogFile();

}  // namespace sdp::preload

#define SDP_LOG(level, ...)                                                  \
  do {                                                                       \
    if (::sdp::preload::LogEnabled(::sdp::preload::LogLevel::level))         \
      ::sdp::preload::LogLine(::sdp::preload::LogLevel::level, __VA_ARGS__); \
  } while (0)

#endif  // SDP_PRELOAD_LOG_H_
