// Descriptor numbers that come and go: close, dup and their like keep FdTable, HiddenFds and the readiness
// room right.
//
// A number that goes leaves the table first, then every epoll set, and then is closed. For a number that
// comes, the kernel's call is first.
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <climits>
#include <cstdarg>
#include <new>

#include "preload/confinement.h"
#include "preload/entry_points.h"
#include "preload/hidden_fds.h"
#include "preload/process_life.h"
#include "preload/readiness/readiness.h"
#include "preload/socket/background.h"
#include "preload/startup.h"

namespace sdp::preload {
namespace {

// The default maximum of descriptors in a process (fs.nr_open), which is hardly ever raised.
constexpr unsigned kNumbers = 1 << 20;

rlim_t SoftLimit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kNumbers;
}

// Hidden from the application, for which the number is free.
bool IsInvisible(int fd) { return HiddenFds::Contains(fd) && !ForeignCall::Active(); }

// False while the library has nothing to track, and in a child that shares our memory but not our
// descriptors.
bool KeepsTrack() { return Started() && OwnsProcess(); }

// Epoll descriptors are tracked from the beginning.
bool KeepsTrackOf(int fd) { return (Started() || EpollKnows(fd)) && OwnsProcess(); }

// Returns whether some part of the library knows this number.
bool IsOurs(int fd) { return FdTable::Has(fd) || HiddenFds::Contains(fd) || EpollKnows(fd); }

int CloseTracked(int fd) {
  if (IsInvisible(fd)) return Fail(EBADF);
  const NoCancellation no_cancellation;  // a close that has begun is completed
  SocketRef socket = FdTable::Remove(fd);
  EpollForget(fd);
  int result;
  try {
    result = socket ? socket->Close(fd) : real.close(fd);
  } catch (const std::bad_alloc&) {
    result = real.close(fd);  // Close's last step that may fail
  }
  FollowStandardStream(fd);
  return result;
}

// `to` is a new number for the file of `from`.
int NoteDuplicate(int from, int to) {
  if (to < 0) return to;
  Fresh(to);
  if (const SocketRef socket = FdTable::Get(from)) {
    FdTable::Set(to, socket.get());
    socket->AddDescriptor(to);
  }
  EpollDuplicate(from, to);
  FollowStandardStream(to);
  return to;
}

// Returns another number for a socket while dup2 overwrites its own. The number is not among the low ones,
// which the application may count on.
int StandIn(int fd) {
  return real.fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(std::min<rlim_t>(SoftLimit(), kNumbers) / 2));
}

// dup2 and dup3 with two different, acceptable numbers; `replace()` is the real call. The kernel replaces the
// file at `to` in one step, so that no other thread's open() can get the number in between.
template <typename Replace>
int ReplaceTracked(int from, int to, Replace replace) {
  if (IsInvisible(from)) return Fail(EBADF);
  if (real.fcntl(from, F_GETFD) < 0 || to < 0 || static_cast<rlim_t>(to) >= SoftLimit()) return replace();
  if (IsInvisible(to)) {
    HiddenFds::MakeRoom(to);
    if (HiddenFds::Contains(to)) return Fail(EBADF);
    Background::FollowNumbers();
  }
  SocketRef replaced = FdTable::Remove(to);
  EpollForget(to);
  int stand_in = -1;
  if (replaced) {
    stand_in = StandIn(to);
    if (stand_in < 0 || !replaced->MoveDescriptor(to, stand_in)) {
      if (stand_in >= 0) real.close(stand_in);
      stand_in = -1;
      replaced->Close(to);
    }
  }
  const int result = replace();
  if (stand_in >= 0) {
    const KeepErrno keep;
    replaced->Close(stand_in);
  }
  if (result < 0) FollowStandardStream(to);
  return NoteDuplicate(from, result);
}

// Makes the real call on [first, last] without the hidden numbers in it.
int CloseAroundHidden(unsigned first, unsigned last, int flags) {
  while (first <= INT_MAX && !ForeignCall::Active()) {
    const int hidden =
        HiddenFds::Next(static_cast<int>(first), static_cast<int>(std::min<unsigned>(last, INT_MAX)));
    if (hidden < 0) break;
    const unsigned number = static_cast<unsigned>(hidden);
    if (number > first) {
      const int result = real.close_range(first, number - 1, flags);
      if (result != 0) return result;
    }
    if (number == last) return 0;
    first = number + 1;
  }
  return real.close_range(first, last, flags);
}

int CloseRangeTracked(unsigned first, unsigned last) {
  FdTable::ForEach([&](int fd, Socket*) {
    const unsigned number = static_cast<unsigned>(fd);
    if (number >= first && number <= last) CloseTracked(fd);
  });
  const unsigned end = static_cast<unsigned>(std::min<rlim_t>(SoftLimit(), kNumbers));
  for (unsigned number = first; number < end && number <= last; ++number)
    EpollForget(static_cast<int>(number));
  return CloseAroundHidden(first, last, 0);
}

// For kernels older than close_range().
void CloseOneByOne(unsigned first) {
  const unsigned end = static_cast<unsigned>(std::min<rlim_t>(SoftLimit(), kNumbers));
  for (unsigned number = first; number < end; ++number) {
    if (!IsInvisible(static_cast<int>(number))) real.close(static_cast<int>(number));
  }
}

int ControlTracked(int fd, int command, void* argument) {
  if (IsInvisible(fd)) return Fail(EBADF);
  switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC: {
      const NoCancellation no_cancellation;
      return OwnsProcess() ? NoteDuplicate(fd, real.fcntl(fd, command, argument))
                           : real.fcntl(fd, command, argument);
    }
    case F_SETOWN:
    case F_SETOWN_EX: {
      const int result = real.fcntl(fd, command, argument);
      if (result < 0) return result;
      const NoCancellation no_cancellation;
      if (const SocketRef socket = FdTable::Get(fd)) socket->OwnerChanged(fd);
      return result;
    }
    case F_GETFL:
    case F_SETFL:
      break;
    default:
      return real.fcntl(fd, command, argument);
  }
  const SocketRef socket = FdTable::Get(fd);
  if (!socket) return real.fcntl(fd, command, argument);
  const NoCancellation no_cancellation;
  if (command == F_SETFL) {
    return real.fcntl(fd, F_SETFL,
                      socket->ChangeStatusFlags(static_cast<int>(reinterpret_cast<intptr_t>(argument))));
  }
  const int flags = real.fcntl(fd, F_GETFL);
  return flags < 0 ? flags : socket->VisibleStatusFlags(flags);
}

}  // namespace

// Most numbers are not managed. For those even OwnsProcess() would cost a system call too many.
int SDP_ENTRY(close)(int fd) {
  if (!IsOurs(fd) || !KeepsTrackOf(fd)) return real.close(fd);
  pthread_testcancel();
  return CloseTracked(fd);
}

int SDP_ENTRY(close_range)(unsigned int first, unsigned int last, int flags) noexcept {
  // CLOSE_RANGE_CLOEXEC alone only sets a flag.
  constexpr int kMark = static_cast<int>(CLOSE_RANGE_CLOEXEC),
                kUnshare = static_cast<int>(CLOSE_RANGE_UNSHARE);
  const bool known = (flags & ~(kMark | kUnshare)) == 0;
  if (!KeepsTrack() || flags == kMark || !known || first > last) return real.close_range(first, last, flags);
  const NoCancellation no_cancellation;
  if (flags == 0) return CloseRangeTracked(first, last);
  // The only thread has had its descriptors to itself before. If there are others, this thread gets
  // descriptors of its own, which the library cannot tell from theirs.
  const bool alone = BeforeCallOfOneThread();
  const bool closes = alone && (flags & kMark) == 0 &&
                      real.unshare(CLONE_FILES) == 0;  // another process may share the descriptors
  const int result = closes ? CloseRangeTracked(first, last) : real.close_range(first, last, flags);
  const KeepErrno keep;
  AfterCallOfOneThread();
  return result;
}

void SDP_ENTRY(closefrom)(int first) noexcept {
  if (!KeepsTrack()) return real.closefrom(first);
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  const unsigned lowest = static_cast<unsigned>(std::max(first, 0));
  if (CloseRangeTracked(lowest, ~0U) != 0) CloseOneByOne(lowest);
}

int SDP_ENTRY(dup)(int fd) noexcept {
  if (!KeepsTrackOf(fd)) return real.dup(fd);
  const NoCancellation no_cancellation;
  if (IsInvisible(fd)) return Fail(EBADF);
  return NoteDuplicate(fd, real.dup(fd));
}

int SDP_ENTRY(dup2)(int from, int to) noexcept {
  if ((!KeepsTrackOf(from) && !KeepsTrackOf(to)) || from == to) return real.dup2(from, to);
  const NoCancellation no_cancellation;
  return ReplaceTracked(from, to, [&] { return real.dup2(from, to); });
}

int SDP_ENTRY(dup3)(int from, int to, int flags) noexcept {
  if ((!KeepsTrackOf(from) && !KeepsTrackOf(to)) || from == to || (flags & ~O_CLOEXEC) != 0)
    return real.dup3(from, to, flags);
  const NoCancellation no_cancellation;
  return ReplaceTracked(from, to, [&] { return real.dup3(from, to, flags); });
}

int SDP_ENTRY(fcntl)(int fd, int command, ...) {
  va_list variable;
  va_start(variable, command);
  void* argument = va_arg(variable, void*);
  va_end(variable);
  return Started() || EpollKnows(fd) ? ControlTracked(fd, command, argument)
                                     : real.fcntl(fd, command, argument);
}

int SDP_ENTRY(prctl)(int option, ...) noexcept {
  va_list variable;
  va_start(variable, option);
  unsigned long arguments[4];
  for (unsigned long& argument : arguments) argument = va_arg(variable, unsigned long);
  va_end(variable);
  const auto call = [&] {
    return real.prctl(option, arguments[0], arguments[1], arguments[2], arguments[3]);
  };
  return option == PR_SET_SECCOMP ? ConfineByPrctl(arguments[0], arguments[1], call) : call();
}

// Such an end runs no destructor, but sent bytes have to leave, as they would by the kernel's TCP.
void SDP_ENTRY(_exit)(int status) {
  const NoCancellation no_cancellation;
  if (KeepsTrack()) ProcessExitAtOnce();
  real._exit(status);
  __builtin_unreachable();
}

void SDP_ENTRY(_Exit)(int status) noexcept {
  const NoCancellation no_cancellation;
  if (KeepsTrack()) ProcessExitAtOnce();
  real._Exit(status);
  __builtin_unreachable();
}

SDP_ENTRY_ALIAS(__close, close);
SDP_ENTRY_ALIAS(__dup2, dup2);
SDP_ENTRY_ALIAS(__fcntl, fcntl);
SDP_ENTRY_ALIAS(fcntl64, fcntl);

}  // namespace sdp::preload
