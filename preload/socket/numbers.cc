#include "preload/socket/numbers.h"

#include <fcntl.h>

#include "preload/critical.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// Numbers that a signal handler may add: the standard descriptors, and some.
constexpr size_t kRoomForHandlers = 5;

}  // namespace

Numbers::Numbers() { fds_.reserve(1 + kRoomForHandlers); }

void Numbers::Add(int fd) {
  if (fds_.capacity() - fds_.size() < kRoomForHandlers && !Critical::MayBeInHandler())
    fds_.reserve(2 * (fds_.size() + kRoomForHandlers));
  fds_.push_back(fd);
}

int Numbers::OtherThan(int fd) const {
  const auto other = std::find_if(fds_.begin(), fds_.end(), [fd](int number) { return number != fd; });
  return other == fds_.end() ? -1 : *other;
}

bool Numbers::SurvivesExec() const {
  return std::any_of(fds_.begin(), fds_.end(),
                     [](int fd) { return (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0; });
}

bool Numbers::IsNonblocking(int fd) {
  if (!nonblocking_) {
    const int flags = real.fcntl(fd, F_GETFL);
    nonblocking_ = flags >= 0 && (flags & O_NONBLOCK) != 0;
    appends_ = flags >= 0 && (flags & O_APPEND) != 0;
  }
  return *nonblocking_;
}

bool Numbers::Appends(int fd) {
  IsNonblocking(fd);
  return appends_;
}

int Numbers::Set(int flags) {
  nonblocking_ = (flags & O_NONBLOCK) != 0;
  appends_ = (flags & O_APPEND) != 0;
  return forced_ ? flags | O_NONBLOCK : flags;
}

void Numbers::ForceNonblocking(int fd) {
  real.fcntl(fd, F_SETFL, real.fcntl(fd, F_GETFL) | O_NONBLOCK);
  forced_ = true;
}

void Numbers::EndForce(int fd) const {
  if (forced_ && !nonblocking()) real.fcntl(fd, F_SETFL, real.fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

int Numbers::Visible(int kernel_flags) const {
  return kernel_flags < 0 || !forced_ || nonblocking() ? kernel_flags : kernel_flags & ~O_NONBLOCK;
}

bool PutInPlace(int fresh, int fd) {
  real.fcntl(fresh, F_SETFL, real.fcntl(fd, F_GETFL));
  return real.dup3(fresh, fd, (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) >= 0;
}

}  // namespace sdp::preload
