#include "preload/socket/waiter.h"

#include <sys/eventfd.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>

#include "preload/fd_table.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

thread_local std::unique_ptr<Waiter> this_thread_waiter;
thread_local pid_t waiter_process = 0;

}  // namespace

Waiter* Waiter::ForThisThread() {
  if (__libc_single_threaded) return nullptr;
  // A child of fork shares the parent's eventfd: it makes itself a new one.
  if (this_thread_waiter != nullptr && waiter_process == getpid()) return this_thread_waiter.get();
  const int saved = errno;
  std::unique_ptr<Waiter> waiter(new Waiter);
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd >= 0) HiddenFds::HideTracked(fd, &waiter->event_fd_);
  errno = saved;
  if (waiter->event_fd() < 0) return nullptr;
  waiter_process = getpid();
  this_thread_waiter = std::move(waiter);
  return this_thread_waiter.get();
}

Waiter::~Waiter() {
  if (event_fd() >= 0) HiddenFds::Close(event_fd());
}

void Waiter::Wake() {
  const uint64_t one = 1;
  const int saved = errno;
  (void)!real.write(event_fd(), &one, sizeof one);
  errno = saved;
}

void Waiter::Drain() {
  uint64_t count;
  const int saved = errno;
  (void)!real.read(event_fd(), &count, sizeof count);
  errno = saved;
}

}  // namespace sdp::preload
