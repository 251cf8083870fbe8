// How threads and other sets hear of what an epoll set has to report: by the kick, an eventfd in the inner
// epoll.
#include <poll.h>

#include <cerrno>

#include "preload/guard.h"
#include "preload/readiness/epoll_set.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/real_calls.h"

namespace sdp::preload {

// With the lock held: wakes whoever sleeps in the kernel for this set.
void EpollSet::Kick() {
  if (sleepers_.load() == 0 && !nested_.load() && !PlainSleep::Any(group_)) return;
  const NoCancellation no_cancellation;
  const uint64_t one = 1;
  const int saved = errno;
  (void)!real.write(kick_, &one, sizeof one);
  errno = saved;
}

void EpollSet::TakeKick() {
  uint64_t kicks;
  (void)!real.read(kick_, &kicks, sizeof kicks);
}

// Kicks unless it is kicked already: each kick is another event to an edge-triggered set around this one.
void EpollSet::KeepKicked() {
  pollfd kick{.fd = kick_, .events = POLLIN, .revents = 0};
  if (real.poll(&kick, 1, 0) == 1) return;
  std::lock_guard lock(mutex_);
  Kick();
}

void EpollSet::SetNested() {
  std::lock_guard lock(mutex_);
  nested_ = true;
  if (!candidates_.empty()) Kick();
}

// A wait has taken the kick in; what still holds, other sets have to see, and the next one who sleeps in this
// one: the kernel wakes him, too, for what has found no room, and for what is level-triggered.
void EpollSet::KickOthers() {
  if (!nested_.load() && sleepers_.load() == 0 && !PlainSleep::Any(group_)) return;
  std::lock_guard lock(mutex_);
  if (!candidates_.empty()) Kick();
}

bool EpollSet::AnyHolds() {
  Work work;
  TakeCandidates(&work, /*keep=*/true);
  for (auto& [fd, socket] : work) {
    const StreamSocket::Readiness readiness = static_cast<StreamSocket*>(socket.get())->GetReadiness();
    std::lock_guard lock(mutex_);
    NoteShared(fd, readiness.shared);
    const Entry* const entry = Find(fd);
    if (entry != nullptr && Holding(*entry, readiness) != 0) return true;
  }
  return false;
}

// It reports nothing, so that the kick stays as long as anything holds: to sets around this one it is what
// the kernel calls level-triggered.
bool EpollSet::ProgressAndCheck() {
  const bool kicked = ProgressLinks(/*take_kick=*/false);
  (void)LookAtShared();
  if (!AnyHolds()) {
    if (!kicked) return false;
    TakeKick();
    // What has come since was perhaps kicked for with what has just been taken in.
    if (!AnyHolds()) return false;
  }
  if (nested_.load()) KeepKicked();
  return true;
}

}  // namespace sdp::preload
