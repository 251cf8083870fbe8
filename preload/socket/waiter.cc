#include "preload/socket/waiter.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <iterator>
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

// futex_waitv as a cancellation point. A cancellation ends it by a signal in the system call, and unwinds
// from there. Not inlined: syscall() is declared to throw nothing, so a frame with objects could not be
// unwound. AddressSanitizer does not hear of such an end of a frame.
[[gnu::noinline, gnu::no_sanitize_address]] long SleepForFutexes(const futex_waitv* futexes, size_t count) {
  int before;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
  const long result = ::syscall(SYS_futex_waitv, futexes, count, 0, nullptr, 0);
  pthread_setcanceltype(before, nullptr);
  return result;
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
  if (this_thread_waiter != nullptr && this_thread_waiter->futex_ == kUnwoken)
    this_thread_waiter->futex_ = kWoken;
}

Waiter::~Waiter() { HiddenFds::Close(event_fd()); }

int Waiter::SleepAt(const verbs::FutexBell& bell) {
  const SleepMayBeCancelled here;
  const futex_waitv futexes[] = {
      {bell.unrung, reinterpret_cast<uintptr_t>(bell.word), FUTEX_32, 0},
      {kUnwoken, reinterpret_cast<uintptr_t>(&futex_), FUTEX_32 | FUTEX_PRIVATE_FLAG, 0}};
  return SleepForFutexes(futexes, std::size(futexes)) < 0 && errno == EINTR ? EINTR : 0;
}

void Waiter::Wake() {
  const NoCancellation no_cancellation;
  const uint64_t one = 1;
  const KeepErrno keep;
  uint32_t unwoken = kUnwoken;
  if (!Confined() && futex_.compare_exchange_strong(unwoken, kWoken))
    ::syscall(SYS_futex, &futex_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  // A handler that interrupted the sleep may sleep, too, in poll.
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
