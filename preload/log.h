// One line per event that a user may ask about: "sdp[PID]: text". Thread-safe, keeps errno, makes only real
// system calls, and never blocks the program on a full pipe.
#ifndef SDP_PRELOAD_LOG_H_
#define SDP_PRELOAD_LOG_H_

#include "preload/config.h"

namespace sdp::preload {

bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// What standard error is now, at the program's start, is where lines go that go there. A program that closes
// it or puts another file in its place gets none: its number may be a file of data, or a connection, by the
// time the library has a line for it. Nor does one that `is_managed` by then: a socket of the library's.
void NoteStandardError(bool (*is_managed)(int fd) = nullptr);

// Before a filter is set, behind which nobody can ask how long a file may become.
void PrepareLogForConfinement();

// The configuration has changed: lines go to its log file from now on.
void FollowLogFile();

}  // namespace sdp::preload

#define SDP_LOG(level, ...)                                                  \
  do {                                                                       \
    if (::sdp::preload::LogEnabled(::sdp::preload::LogLevel::level))         \
      ::sdp::preload::LogLine(::sdp::preload::LogLevel::level, __VA_ARGS__); \
  } while (0)

#endif  // SDP_PRELOAD_LOG_H_
