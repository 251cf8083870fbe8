#include "preload/signal_end.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// A second signal shows impatience and ends the process at once, unless it belongs to the first: timeout(1)
// kills the process and then its group.
constexpr int64_t kSameEndNs = 100'000'000;

// How often a thread that may hold bytes it has just read gets a moment to continue, and how long that is.
constexpr int kMostDelays = 20;
constexpr long kDelayNs = 1'000'000;

constinit std::atomic<bool> guarded{false};
constinit std::atomic<void (*)()> last_words_of_process{nullptr};
// The process that a signal is ending, the signal, and the start time.
constinit std::atomic<pid_t> ending{0};
constinit std::atomic<int> first_signal{0};
constinit std::atomic<int64_t> began_ns{0};
constinit std::atomic<bool> comes_again{false};  // or has come
thread_local int delays __attribute__((tls_model("initial-exec"))) = 0;
thread_local bool ends_here __attribute__((tls_model("initial-exec"))) = false;

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool IsFirstOfNamespace() { return getpid() == 1; }

// A core dump must show the process as the signal found it. (Errors of the thread itself do not come here.)
constexpr int kWithCore[] = {SIGQUIT, SIGXCPU, SIGXFSZ};

// Returns the signals that end a process by default and leave no core. Critical knows which of them it can
// hold off.
sigset_t Ending() {
  sigset_t set;
  sigfillset(&set);
  for (const int number : {SIGCHLD, SIGURG, SIGWINCH, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU})
    sigdelset(&set, number);
  for (const int number : kWithCore) sigdelset(&set, number);
  return set;
}

// Returns whether the thread is in a link's read, except asleep there with nothing read. A restarted call is
// recognised by its program counter before the instruction, and by its number where the result would be.
bool MayHaveRead([[maybe_unused]] const ucontext_t& interrupted) {
  if (!LinkRead::UnderWay()) return false;
#ifdef __x86_64__
  const auto& registers = interrupted.uc_mcontext.gregs;
  const auto call = registers[REG_RAX];
  const auto* const next = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
  const bool stands_before = next[0] == 0x0f && next[1] == 0x05;  // syscall
  return !stands_before || (call != SYS_recvfrom && call != SYS_recvmsg && call != SYS_read) ||
         registers[REG_RDI] != LinkRead::fd();
#else
  return true;
#endif
}

// The signal comes again in a moment, sent to the process, since this thread may have ended by then.
bool Delay(int number) {
  if (delays >= kMostDelays) return false;
  ++delays;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = number;
  timer_t timer;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return false;
  comes_again = true;
  const itimerspec once{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kDelayNs}};
  return timer_settime(timer, 0, &once, nullptr) == 0;
}

// Waits for delayed signals, since their timers do not outlive an exec.
void AwaitDelayed() {
  if (!comes_again.load(std::memory_order_relaxed)) [[likely]]
    return;
  const NoCancellation no_cancellation;
  const timespec longer{.tv_sec = 0, .tv_nsec = 2 * kDelayNs};
  real.ppoll(nullptr, 0, &longer, nullptr);
}

// From here on, only signals that would end the process anyway may interrupt the thread.
void BlockHandlers(int number, const ucontext_t& interrupted) {
  sigset_t mask;
  sigfillset(&mask);
  for (int other = 1; other < NSIG; ++other) {
    if (Critical::StandsIn(other) && sigismember(&interrupted.uc_sigmask, other) == 0)
      sigdelset(&mask, other);
  }
  for (const int other : kWithCore) {
    struct sigaction action {};
    const bool ends = real.sigaction(other, nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
    if (ends && sigismember(&interrupted.uc_sigmask, other) == 0) sigdelset(&mask, other);
  }
  sigdelset(&mask, number);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

// Returns whether this thread ends the process. False: another thread is ending it, or this one will do so a
// moment later.
bool MayEndIt(int number, const ucontext_t& interrupted) {
  const int64_t now = NowNs();
  if (ending != 0) {
    // SIGPIPE comes from this thread's own write, to a peer that went first: no sign of impatience.
    if (number == SIGPIPE) SignalEnd::AwaitIfUnderWay();
    const int64_t began = began_ns;
    if (began != 0 && now - began >= kSameEndNs) Critical::TakeDefault(first_signal);
    return false;
  }
  if (MayHaveRead(interrupted) && Delay(number)) return false;
  pid_t none = 0;
  if (!ending.compare_exchange_strong(none, getpid())) return false;
  ends_here = true;
  first_signal = number;
  began_ns = now;
  return true;
}

void End(int number, const ucontext_t& interrupted) {
  const KeepErrno keep;
  if (!MayEndIt(number, interrupted)) return;
  BlockHandlers(number, interrupted);
  const NoCancellation no_cancellation;
  last_words_of_process.load()();
  Critical::TakeDefault(number);
}

}  // namespace

void SignalEnd::Guard(void (*last_words)()) {
  if (guarded.load(std::memory_order_relaxed)) [[likely]]
    return;
  if (Confined() || IsFirstOfNamespace() || guarded.exchange(true)) return;
  last_words_of_process = last_words;
  if (!Critical::StandIn(Ending(), End)) guarded = false;
}

bool SignalEnd::Unguard() {
  if (!guarded.load(std::memory_order_relaxed) || !Critical::StandAside()) return false;
  guarded = false;
  AwaitIfUnderWay();
  return true;
}

SignalEnd::Aside::Aside() {
  AwaitIfUnderWay();
  AwaitDelayed();
  stood_in_ = Unguard();
}

SignalEnd::Aside::~Aside() {
  if (!stood_in_) return;
  const KeepErrno keep;
  Guard(last_words_of_process);
}

void SignalEnd::AwaitIfUnderWay() {
  const pid_t process = ending.load(std::memory_order_relaxed);
  if (process == 0) [[likely]]
    return;
  // In a child of vfork, the end is its parent's. The thread that ends the process continues, since a handler
  // of the program's may have interrupted it.
  if (process != getpid() || ends_here) return;
  const NoCancellation no_cancellation;
  for (;;) real.ppoll(nullptr, 0, nullptr, nullptr);
}

void SignalEnd::ForgetAfterFork() {
  ending = 0;
  ends_here = false;
  began_ns = 0;
  comes_again = false;
  if (IsFirstOfNamespace()) Unguard();
}

}  // namespace sdp::preload
