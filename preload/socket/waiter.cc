#include "preload/socket/waiter.h"

#include <limits.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

constexpr Duration kDeafSleep = std::chrono::milliseconds(32);

// A key of the thread's own destroys the waiter. A thread_local object with a destructor would use malloc,
// which a signal handler may have interrupted. Code that runs after all key destructors may sleep once more.
// It then finds no waiter, and makes one that stays.
constinit thread_local Waiter* this_thread_waiter __attribute__((tls_model("initial-exec"))) = nullptr;
thread_local uint32_t waiter_generation __attribute__((tls_model("initial-exec"))) = 0;
std::atomic<uint32_t> generation{1};  // grows in a child of fork

// Guarded, so that no signal handler meets a half-made key.
pthread_key_t KeyOfWaiters() {
  Critical::Enter();
  static const pthread_key_t key = [] {
    pthread_key_t made = PTHREAD_KEYS_MAX;  // has no effect if no key is left
    // The program has jumped out of a sleep: a socket knows the waiter still, which stays.
    pthread_key_create(&made, [](void*) {
      Waiter* const waiter = std::exchange(this_thread_waiter, nullptr);
      if (waiter != nullptr && !waiter->in_sleep()) delete waiter;
    });
    return made;
  }();
  Critical::Leave();
  return key;
}

void Take(std::unique_ptr<Waiter> waiter) {
  const Waiter* const before = std::exchange(this_thread_waiter, waiter.release());
  if (before != nullptr && !before->in_sleep()) delete before;
  pthread_setspecific(KeyOfWaiters(), this_thread_waiter);
}

}  // namespace

Waiter* Waiter::ForThisThread() {
  if (__libc_single_threaded) return nullptr;
  // A confined process could not make one. Its limit on descriptors may also forbid a poll one more.
  if (Confined()) return nullptr;
  // A child of fork shares the parent's eventfd: it makes itself a new one.
  if (this_thread_waiter != nullptr && waiter_generation == generation.load(std::memory_order_relaxed))
    return this_thread_waiter;
  const KeepErrno keep;
  std::unique_ptr<Waiter> waiter(new (std::nothrow) Waiter);
  if (waiter == nullptr) return nullptr;
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd >= 0) HiddenFds::HideTracked(fd, &waiter->event_fd_);
  if (waiter->event_fd() < 0) return nullptr;
  waiter_generation = generation.load(std::memory_order_relaxed);
  Take(std::move(waiter));
  return this_thread_waiter;
}

Time Waiter::LookAgainWithout() { return __libc_single_threaded ? kNever : Now() + kDeafSleep; }

void Waiter::ForgetAfterFork() {
  generation.fetch_add(1, std::memory_order_relaxed);
  // In a handler that interrupted the sleep: what wakes the parent does not wake this process.
  if (this_thread_waiter != nullptr && this_thread_waiter->at_bell_) this_thread_waiter->bell_.Renew();
}

Waiter::~Waiter() { HiddenFds::Close(event_fd()); }

int Waiter::SleepAtBell() {
  const SleepMayBeCancelled here;
  uint64_t cookie;
  return real.recv(bell_.fd(), &cookie, sizeof cookie, 0) < 0 ? errno : 0;
}

void Waiter::Wake() {
  // A handler that interrupted the sleep may sleep, too, in poll.
  if (at_bell_ && !Confined()) bell_.RingSelf();
  const NoCancellation no_cancellation;
  const uint64_t one = 1;
  const KeepErrno keep;
  (void)!real.write(event_fd(), &one, sizeof one);
}

void Waiter::DrainBell() {
  std::array<uint64_t, iwarp::Bell::kMostAtOnce> cookies;
  if (!Confined()) (void)bell_.Take(cookies);
}

void Waiter::Drain() {
  const NoCancellation no_cancellation;
  uint64_t count;
  const KeepErrno keep;
  (void)!real.read(event_fd(), &count, sizeof count);
}

}  // namespace sdp::preload
