#include "preload/log.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "preload/allowed_calls.h"
#include "preload/file_size_limit.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// The most that a writable pipe takes in one piece without blocking (PIPE_BUF guarantees it).
constexpr size_t kLongestLine = 1024;

constexpr int kNotOpen = -1;
constexpr int kUnusable = -2;

// The log file or the socket to syslog, opened at the first line. Its hidden number stays when the file
// changes.
constinit std::atomic<int> log_file{kNotOpen};

// Opens the file. A name without a leading slash comes from OFED's libsdp, which puts such files where only
// their user writes: /var/log/NAME for root, /tmp/NAME.UID/log for others.
int OpenFileOfName(const std::string& name) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  if (name.front() == '/') return open(name.c_str(), kFlags, 0600);
  const uid_t user = geteuid();
  if (user == 0) return open(("/var/log/" + name).c_str(), kFlags | O_NOFOLLOW, 0600);
  const std::string directory = "/tmp/" + name + "." + std::to_string(user);
  mkdir(directory.c_str(), 0700);
  struct stat status {};
  if (lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != user ||
      (status.st_mode & 022) != 0)
    return -1;
  return open((directory + "/log").c_str(), kFlags | O_NOFOLLOW, 0600);
}

int OpenSyslog() {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "/dev/log"};
  const int fd = real.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && real.connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return fd;
  if (fd >= 0) real.close(fd);
  return -1;
}

int OpenLog() {
  const Config& wanted = config();
  return wanted.log_destination == LogDestination::kSyslog ? OpenSyslog() : OpenFileOfName(wanted.log_file);
}

int OpenLogFile() {
  const int fd = HiddenFds::Hide(OpenLog());
  int expected = kNotOpen;
  if (log_file.compare_exchange_strong(expected, fd >= 0 ? fd : kUnusable)) return fd;
  if (fd >= 0) HiddenFds::Close(fd);
  return expected;
}

// What NoteStandardError found. Written once, before other threads exist.
struct StandardError {
  bool noted = false;
  bool open = false;
  bool (*is_managed)(int fd) = nullptr;
  dev_t device = 0;
  ino_t inode = 0;
};
constinit StandardError standard_error;

// A server started by inetd has its client at standard error. The journal's sockets are Unix sockets.
bool IsConnectionToAnotherHost(const struct stat& status) {
  if (!S_ISSOCK(status.st_mode)) return false;
  int domain = 0;
  socklen_t length = sizeof domain;
  return real.getsockopt(STDERR_FILENO, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX;
}

bool IsStandardErrorYet() {
  if (!standard_error.noted) return true;
  if (standard_error.is_managed != nullptr && standard_error.is_managed(STDERR_FILENO)) return false;
  struct stat status {};
  // A confined process may no longer ask.
  return standard_error.open &&
         (Confined() || (fstat(STDERR_FILENO, &status) == 0 && status.st_dev == standard_error.device &&
                         status.st_ino == standard_error.inode));
}

int LogDescriptor() {
  if (config().log_destination == LogDestination::kStandardError)
    return IsStandardErrorYet() ? STDERR_FILENO : kUnusable;
  const int fd = log_file.load();
  return fd == kNotOpen ? OpenLogFile() : fd;
}

// Writes the priority for syslog's facility "user". Returns its length.
size_t SyslogPriority(LogLevel level, char* out, size_t size) {
  if (config().log_destination != LogDestination::kSyslog) return 0;
  constexpr int kUser = 1 << 3;
  const int severity = level == LogLevel::kError ? 3 : level == LogLevel::kInfo ? 6 : 7;
  return static_cast<size_t>(snprintf(out, size, "<%d>", kUser | severity));
}

// Whether lines are dropped in a confined process, which cannot find out the file's length.
constinit std::atomic<bool> silent_behind_filter{false};

bool IsFile(int fd, off_t* length = nullptr) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  if (length != nullptr) *length = status.st_size;
  return true;
}

// Returns whether the file takes a line. A slow reader, a reader that is gone (SIGPIPE), or a file at its
// size limit (SIGXFSZ) costs the line, not the program.
bool TakesALine(int fd, size_t length) {
  pollfd writable = {.fd = fd, .events = POLLOUT, .revents = 0};
  if (real.poll(&writable, 1, 0) != 1 || writable.revents != POLLOUT) return false;
  if (Confined()) return !silent_behind_filter.load();
  const off_t longest = LongestFile();
  off_t is = 0;
  return longest == kUnlimitedFile || !IsFile(fd, &is) || is <= longest - static_cast<off_t>(length);
}

}  // namespace

bool LogEnabled(LogLevel level) { return level <= config().log_level; }

void LogLine(LogLevel level, const char* format, ...) {
  if (!LogEnabled(level)) return;
  // The calls that a line needs: a line must not kill the process.
  if (Confined() && !(MayCall(Call::kGetpid) && MayCall(Call::kPoll) && MayCall(Call::kWrite))) return;
  const NoCancellation no_cancellation;
  const int error = errno;
  char line[kLongestLine];
  size_t length = SyslogPriority(level, line, sizeof line);
  length += static_cast<size_t>(
      snprintf(line + length, sizeof line - length, "sdp[%d]: ", static_cast<int>(getpid())));
  va_list arguments;
  va_start(arguments, format);
  errno = error;  // for %m
  const int text = vsnprintf(line + length, sizeof line - length, format, arguments);
  va_end(arguments);
  if (text > 0) length = std::min(length + static_cast<size_t>(text), sizeof line - 1);
  line[length++] = '\n';  // replaces the terminator
  const int fd = LogDescriptor();
  if (fd >= 0 && TakesALine(fd, length)) (void)!real.write(fd, line, length);
  errno = error;
}

void NoteStandardError(bool (*is_managed)(int fd)) {
  struct stat status {};
  const bool open = fstat(STDERR_FILENO, &status) == 0 && !IsConnectionToAnotherHost(status);
  standard_error = {
      .noted = true, .open = open, .is_managed = is_managed, .device = status.st_dev, .inode = status.st_ino};
}

void PrepareLogForConfinement() {
  const int fd = LogDescriptor();
  silent_behind_filter = fd >= 0 && LongestFile() != kUnlimitedFile && IsFile(fd);
}

void FollowLogFile() {
  if (config().log_destination == LogDestination::kStandardError) return;
  int old = log_file.load();
  if (old == kUnusable) log_file.compare_exchange_strong(old, kNotOpen);  // the new file may be usable
  if (old < 0) return;
  // Replaced in place: another thread may be about to write to this number.
  const int fd = OpenLog();
  if (fd < 0) return;
  real.dup3(fd, old, O_CLOEXEC);
  real.close(fd);
}

}  // namespace sdp::preload
