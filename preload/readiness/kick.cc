#include "preload/readiness/kick.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/real_calls.h"

namespace sdp::preload {

bool Kick::Open(uint32_t group) {
  group_ = group;
  nested_ = false;
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return fd >= 0 && HiddenFds::HideTracked(fd, &fd_) >= 0;
}

void Kick::Close() { HiddenFds::Close(fd_.exchange(-1)); }

bool Kick::heard() const { return sleepers_.load() != 0 || nested_.load() || PlainSleep::Any(group_); }

void Kick::Give() {
  if (!heard()) return;
  const NoCancellation no_cancellation;
  const uint64_t one = 1;
  const KeepErrno keep;
  (void)!real.write(fd_, &one, sizeof one);
}

void Kick::Take() {
  uint64_t kicks;
  (void)!real.read(fd_, &kicks, sizeof kicks);
}

bool Kick::given() const {
  pollfd kick{.fd = fd_, .events = POLLIN, .revents = 0};
  return real.poll(&kick, 1, 0) == 1;
}

}  // namespace sdp::preload
