#include "preload/signal_end.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

// A second signal shows impatience and ends the process at once, unless it belongs to the first: timeout(1)
// kills the process and then its group.
constexpr int64_t kSameEndNs = 100'000'000;

constinit std::atomic<bool> guarded{false};
constinit std::atomic<void (*)()> last_words_of_process{nullptr};
// The process that a signal is ending, the signal, and the start time.
constinit std::atomic<pid_t> ending{0};
constinit std::atomic<int> first_signal{0};
constinit std::atomic<int64_t> began_ns{0};
thread_local bool ends_here __attribute__((tls_model("initial-exec"))) = false;

int64_t NowNs() { return Now().time_since_epoch().count(); }

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

// Returns whether this thread ends the process. False: another thread is ending it.
bool MayEndIt(int number) {
  const int64_t now = NowNs();
  if (ending != 0) {
    // SIGPIPE comes from this thread's own write, to a peer that went first: no sign of impatience.
    if (number == SIGPIPE) SignalEnd::AwaitIfUnderWay();
    const int64_t began = began_ns;
    if (began != 0 && now - began >= kSameEndNs) Critical::TakeDefault(first_signal);
    return false;
  }
  pid_t none = 0;
  if (!ending.compare_exchange_strong(none, getpid())) return false;
  ends_here = true;
  first_signal = number;
  began_ns = now;
  return true;
}

void End(int number, const ucontext_t& interrupted) {
  const KeepErrno keep;
  if (!MayEndIt(number)) return;
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
  if (IsFirstOfNamespace()) Unguard();
}

}  // namespace sdp::preload
