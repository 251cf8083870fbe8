#include "preload/socket/owner_signal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/hidden_fds.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

using Owner = struct f_owner_ex;

bool FindOwner(int fd, Owner* owner) {
  return !Confined() && real.fcntl(fd, F_GETOWN_EX, owner) == 0 && owner->pid > 0;
}

void Send(const Owner& owner, int signal) {
  if (owner.type == F_OWNER_TID) {
    syscall(SYS_tkill, owner.pid, signal);
  } else {
    kill(owner.type == F_OWNER_PGRP ? -owner.pid : owner.pid, signal);
  }
}

// A signal of F_SETSIG comes with the descriptor and the event. A process may send such kernel-style details
// only to itself.
void SendWithFacts(const Owner& owner, int signal, int code, int band, int number) {
  siginfo_t info{};
  info.si_signo = signal;
  info.si_code = code;
  info.si_band = band;
  info.si_fd = number;
  if (owner.type == F_OWNER_PID && owner.pid == getpid()) {
    syscall(SYS_rt_sigqueueinfo, owner.pid, signal, &info);
  } else if (owner.type == F_OWNER_TID &&
             syscall(SYS_rt_tgsigqueueinfo, getpid(), owner.pid, signal, &info) == 0) {
    return;
  } else {
    Send(owner, signal);
  }
}

// Returns whether O_ASYNC is set; *signal: F_SETSIG's, 0 if none was set.
bool IsAsync(int fd, int* signal) {
  const int flags = real.fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ASYNC) == 0) return false;
  *signal = real.fcntl(fd, F_GETSIG);
  return *signal >= 0;
}

}  // namespace

bool HasOwner(int fd) {
  const KeepErrno keep;
  Owner owner{};
  return FindOwner(fd, &owner);
}

bool SignalUrgent(int fd) {
  const KeepErrno keep;
  Owner owner{};
  if (FindOwner(fd, &owner)) {
    Send(owner, SIGURG);
    int signal = 0;
    if (IsAsync(fd, &signal) && signal != 0) SendWithFacts(owner, signal, POLL_PRI, POLLPRI | POLLRDBAND, fd);
  }
  return owner.pid > 0 && owner.pid == (owner.type == F_OWNER_PGRP  ? getpgrp()
                                        : owner.type == F_OWNER_TID ? gettid()
                                                                    : getpid());
}

void ConnectionSignal::Set(int fd) {
  HiddenFds::Close(fd_.exchange(-1));
  if (fd < 0) return;
  number_ = fd;
  const int duplicate = real.fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (duplicate >= 0) HiddenFds::HideTracked(duplicate, &fd_);
}

void ConnectionSignal::Notify() const {
  if (fd_ < 0) return;
  const KeepErrno keep;
  Owner owner{};
  int signal = 0;
  if (FindOwner(fd_, &owner) && IsAsync(fd_, &signal)) {
    if (signal == 0) {
      Send(owner, SIGIO);
    } else {
      SendWithFacts(owner, signal, POLL_IN, POLLIN | POLLRDNORM, number_);
    }
  }
}

}  // namespace sdp::preload
