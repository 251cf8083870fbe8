#include "preload/signal_table.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "preload/allowed_calls.h"

namespace sdp::preload {
namespace {

// Two for each signal: one is in use.
constinit struct sigaction actions[NSIG][2] = {};
constinit std::atomic<uint8_t> in_use[NSIG] = {};
constinit std::atomic_flag changing = ATOMIC_FLAG_INIT;
// The process that owns the table; 0: not known yet.
constinit std::atomic<pid_t> owner{0};

}  // namespace

void SignalTable::RemoveErrors(sigset_t* set) {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(set, number);
}

bool SignalTable::MayBeHeldOff(int number) {
  if (number <= 0 || number >= NSIG || number == SIGKILL || number == SIGSTOP) return false;
  if (number >= 32 && number < SIGRTMIN) return false;  // the C library's own
  sigset_t set;
  sigfillset(&set);
  RemoveErrors(&set);
  return sigismember(&set, number) == 1;
}

bool SignalTable::IsOwn() {
  if (!MayCall(Call::kGetpid)) return true;
  const pid_t self = getpid();
  pid_t seen = 0;
  return owner.compare_exchange_strong(seen, self) || seen == self;
}

void SignalTable::Adopt() {
  owner.store(getpid());
  changing.clear();  // another thread may have held it
}

const struct sigaction& SignalTable::ActionOf(int number) {
  return actions[number][in_use[number].load(std::memory_order_acquire)];
}

void SignalTable::Note(int number, const struct sigaction& action) {
  const uint8_t after = in_use[number].load(std::memory_order_relaxed) ^ 1;
  actions[number][after] = action;
  in_use[number].store(after, std::memory_order_release);
}

void SignalTable::TakeBack(int number) { in_use[number].fetch_xor(1, std::memory_order_release); }

SignalTable::Lock::Lock() {
  sigset_t all;
  sigfillset(&all);
  RemoveErrors(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask_);
  while (changing.test_and_set(std::memory_order_acquire)) {
  }
}

SignalTable::Lock::~Lock() {
  changing.clear(std::memory_order_release);
  pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
}

}  // namespace sdp::preload
