#include "preload/log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "preload/fd_table.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// What a pipe that polls as writable takes in one piece without blocking (PIPE_BUF is its guarantee).
constexpr size_t kLongestLine = 1024;

constexpr int kNotOpen = -1;
constexpr int kUnusable = -2;

// The log file, opened at the first line; kept under a hidden number.
constinit std::atomic<int> log_file{kNotOpen};

int OpenLogFile() {
  const int fd = HiddenFds::Hide(open(
      config().log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600));
  int expected = kNotOpen;
  if (log_file.compare_exchange_strong(expected, fd >= 0 ? fd : kUnusable)) return fd;
  if (fd >= 0) HiddenFds::Close(fd);
  return expected;
}

// Standard error, unless it is closed or the program uses its number for a connection.
int LogDescriptor() {
  if (config().log_file.empty()) return FdTable::Has(STDERR_FILENO) ? kUnusable : STDERR_FILENO;
  const int fd = log_file.load();
  return fd == kNotOpen ? OpenLogFile() : fd;
}

// A reader that is slow, or gone (SIGPIPE), costs the line and not the program.
bool TakesALine(int fd) {
  pollfd writable = {.fd = fd, .events = POLLOUT, .revents = 0};
  return real.poll(&writable, 1, 0) == 1 && writable.revents == POLLOUT;
}

}  // namespace

bool LogEnabled(LogLevel level) { return level <= config().log_level; }

void LogLine(LogLevel level, const char* format, ...) {
  if (!LogEnabled(level)) return;
  const int error = errno;
  char line[kLongestLine];
  size_t length = static_cast<size_t>(snprintf(line, sizeof line, "sdp[%d]: ", static_cast<int>(getpid())));
  va_list arguments;
  va_start(arguments, format);
  errno = error;  // for %m
  const int text = vsnprintf(line + length, sizeof line - length, format, arguments);
  va_end(arguments);
  if (text > 0) length = std::min(length + static_cast<size_t>(text), sizeof line - 1);
  line[length++] = '\n';  // takes the place of the terminator
  const int fd = LogDescriptor();
  if (fd >= 0 && TakesALine(fd)) (void)!real.write(fd, line, length);
  errno = error;
}

}  // namespace sdp::preload
