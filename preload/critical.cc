// How a handler is held off. Handle() stands in the kernel's table in the handler's place. If the thread is
// in a critical section, Handle() notes the signal and has the kernel return with every signal blocked. So
// only the few signals that were already on their way can follow. At its end the section runs the handlers
// that wait, each with the mask it would have had, and restores the thread's mask.
#include "preload/critical.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/privileged.h"
#include "preload/real_calls.h"
#include "preload/signal_table.h"

namespace sdp::preload {
namespace {

// Signals that can interrupt one another inside Handle(), in one thread, before all are blocked.
constexpr int kMostDeferred = 8;

// Set by StandIn().
constinit std::atomic<Critical::DefaultAction> default_action{nullptr};
constinit std::atomic<bool> may_stand_in[NSIG] = {};
struct Deferred {
  int number;
  siginfo_t info;
};
struct Waiting {
  sigset_t mask;  // the thread's own
  std::array<Deferred, kMostDeferred> signals;
};
thread_local Waiting waiting __attribute__((tls_model("initial-exec")));
// The number of handlers that run or were left by a jump.
thread_local volatile sig_atomic_t handlers __attribute__((tls_model("initial-exec"))) = 0;

// As the kernel sees it, whatever the flags say.
bool IsDefault(const struct sigaction& action) { return action.sa_handler == SIG_DFL; }
bool IsFunction(const struct sigaction& action) { return !IsDefault(action) && action.sa_handler != SIG_IGN; }

// A child of vfork, or another process that shares our memory, has handlers of its own and ends by itself.
bool EndsByItself(int number) {
  return IsDefault(SignalTable::ActionOf(number)) && (!may_stand_in[number] || !SignalTable::IsOwn());
}

void SetMask(const sigset_t& mask) { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }

}  // namespace

void Critical::Run(int number, siginfo_t* info, void* context) {
  if (EndsByItself(number)) return TakeDefault(number);
  const struct sigaction action = SignalTable::ActionOf(number);
  if (IsDefault(action))
    return default_action.load(std::memory_order_acquire)(number, *static_cast<ucontext_t*>(context));
  if (!IsFunction(action)) return;  // the program has removed the handler meanwhile
  handled_ = handled_ + 1;
  if ((action.sa_flags & SA_RESTART) == 0) interrupting_ = interrupting_ + 1;
  if ((action.sa_flags & SA_RESETHAND) != 0) {
    struct sigaction once {};
    once.sa_handler = SIG_DFL;
    SetAction(number, &once, nullptr);
  }
  const HandlerInTheMiddle here;
  handlers = handlers + 1;
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(number, info, context);
  } else {
    action.sa_handler(number);
  }
  handlers = handlers - 1;
}

// Runs a handler with a context that describes the thread's present place. Apart from the loop, because
// getcontext may return twice, like setjmp.
[[gnu::noinline]] void Critical::RunLate(int number, siginfo_t* info, const sigset_t& mask) {
  ucontext_t context;
  getcontext(&context);
  context.uc_sigmask = mask;
  Run(number, info, &context);
}

void Critical::Handle(int number, siginfo_t* info, void* context) {
  const bool first = pending_ == 0;
  if (depth_ == 0 || pending_ == kMostDeferred || EndsByItself(number)) {
    Run(number, info, context);
    return;
  }
  Deferred& deferred = waiting.signals[static_cast<size_t>(pending_)];
  pending_ =
      pending_ + 1;  // first of all: a signal that interrupts this one must not count itself as the first
  std::atomic_signal_fence(std::memory_order_seq_cst);
  deferred.number = number;
  deferred.info = *info;
  auto* const interrupted = static_cast<ucontext_t*>(context);
  // Of several signals that come at once, each interrupts the next one's Handle(), where more is blocked. The
  // intersection of their masks is the thread's own.
  if (first) {
    waiting.mask = interrupted->uc_sigmask;
  } else {
    sigandset(&waiting.mask, &waiting.mask, &interrupted->uc_sigmask);
  }
  sigfillset(&interrupted->uc_sigmask);
  SignalTable::RemoveErrors(&interrupted->uc_sigmask);
}

// Lives in RunDeferred()'s frame, which a handler may leave by a jump that the library does not see.
struct Critical::Late {
  explicit Late(int waiting_signals)
      : count(waiting_signals), mask(waiting.mask), outer(late_), mark_(Expected()) {
    std::copy_n(waiting.signals.begin(), count, signals.begin());
    late_ = this;
  }
  ~Late() {
    mark_ = 0;
    late_ = outer;
  }
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;

  [[nodiscard]] __attribute__((no_sanitize("address"))) bool intact() const { return mark_ == Expected(); }

  std::array<Deferred, kMostDeferred> signals;
  int next = 0;
  const int count;
  const sigset_t mask;
  Late* const outer;

 private:
  [[nodiscard]] uint64_t Expected() const { return 0x7a1e'5161'4a15'ed00 ^ reinterpret_cast<uint64_t>(this); }
  volatile uint64_t mark_;
};

// No signal comes meanwhile: all are blocked since the last one that waits.
void Critical::RunDeferred() {
  const NoCancellation no_cancellation;  // a lock's destructor lets nothing through
  const KeepErrno keep;
  const sigset_t mask = waiting.mask;
  {
    Late late(pending_);
    pending_ = 0;
    sigset_t none;
    sigemptyset(&none);
    while (RunNext(late, none)) {
    }
  }
  SetMask(mask);
}

bool Critical::RunNext(Late& late, const sigset_t& besides) {
  if (late.next >= late.count) return false;
  Deferred& deferred = late.signals[static_cast<size_t>(late.next++)];
  const struct sigaction& action = SignalTable::ActionOf(deferred.number);
  sigset_t meanwhile;
  sigorset(&meanwhile, &late.mask, &action.sa_mask);
  sigorset(&meanwhile, &meanwhile, &besides);
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&meanwhile, deferred.number);
  SetMask(meanwhile);
  RunLate(deferred.number, &deferred.info, late.mask);
  return true;
}

// Each of these handlers may jump, too; the rest is then left to that jump. The jump may end within the
// handler, which then continues: signals that it has blocked stay blocked.
void Critical::RunRest() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  while (Late* const late = late_) {
    if (!late->intact()) {
      late_ = nullptr;
    } else if (!RunNext(*late, mask)) {
      late_ = late->outer;
    }
  }
  SetMask(mask);
}

bool Critical::MayBeInHandler() {
  if (!MayCall(Call::kSignalMask)) return handlers != 0;
  sigset_t blocked;
  return pthread_sigmask(SIG_SETMASK, nullptr, &blocked) != 0 || sigisemptyset(&blocked) != 1;
}

bool Critical::IsInHandler() { return handlers != 0 && MayBeInHandler(); }

void Critical::UnblockForExec() {
  for (int i = 0; i < pending_; ++i) {
    if (EndsByItself(waiting.signals[static_cast<size_t>(i)].number))
      TakeDefault(waiting.signals[static_cast<size_t>(i)].number);
  }
  if (pending_ != 0) SetMask(waiting.mask);
}

void Critical::ForgetAfterFork() {
  SignalTable::Adopt();
  if (pending_ == 0) return;
  pending_ = 0;
  SetMask(waiting.mask);
}

// Returns what to install in the kernel for the application's action.
struct sigaction Critical::Installed(int number, const struct sigaction& given) {
  struct sigaction installed = given;
  if (IsFunction(given)) {
    installed.sa_sigaction = &Handle;
    installed.sa_flags |= SA_SIGINFO;
    installed.sa_flags &= ~SA_RESETHAND;
  } else if (IsDefault(given) && may_stand_in[number]) {
    installed.sa_sigaction = &Handle;
    // Runs on any stack: for SIG_DFL the stack would make no difference.
    installed.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigfillset(&installed.sa_mask);  // the first of several signals ends the process
  }
  return installed;
}

bool Critical::StandsIn(int number) {
  return may_stand_in[number] && IsDefault(SignalTable::ActionOf(number));
}

bool Critical::StandIn(const sigset_t& signals, DefaultAction action) {
  if (!SignalTable::IsOwn()) return false;
  const SignalTable::Lock lock;
  default_action.store(action, std::memory_order_release);
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now {};
    if (sigismember(&signals, number) != 1 || !SignalTable::MayBeHeldOff(number)) continue;
    may_stand_in[number] = true;
    if (real.sigaction(number, nullptr, &now) != 0 || !IsDefault(now)) continue;
    const struct sigaction installed = Installed(number, now);
    SignalTable::Note(number, now);
    real.sigaction(number, &installed, nullptr);
  }
  return true;
}

bool Critical::StandAside() {
  if (!SignalTable::IsOwn()) return false;
  const SignalTable::Lock lock;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction now {};
    if (!may_stand_in[number].exchange(false) || real.sigaction(number, nullptr, &now) != 0) continue;
    if (now.sa_sigaction == &Handle && IsDefault(SignalTable::ActionOf(number)))
      real.sigaction(number, &SignalTable::ActionOf(number), nullptr);
  }
  return true;
}

void Critical::TakeDefault(int number) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  real.sigaction(number, &action, nullptr);
  if (getpid() == 1) return;
  sigset_t it;
  sigemptyset(&it);
  sigaddset(&it, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &it, nullptr);
  raise(SIGKILL);  // a debugger has taken the signal away
}

int Critical::SetAction(int number, const struct sigaction* action, struct sigaction* old) {
  if (IsPrivileged() || !SignalTable::MayBeHeldOff(number) || !SignalTable::IsOwn()) {
    const int result = real.sigaction(number, action, old);
    if (result == 0 && old != nullptr && SignalTable::MayBeHeldOff(number) && old->sa_sigaction == &Handle)
      *old = SignalTable::ActionOf(number);
    return result;
  }
  const SignalTable::Lock lock;
  const struct sigaction before = SignalTable::ActionOf(number);
  struct sigaction installed {};
  struct sigaction given {};
  bool noted = false;
  if (action != nullptr) {
    given = *action;
    if (given.sa_sigaction == &Handle) given = before;  // the program has asked the kernel directly
    installed = Installed(number, given);
    noted = installed.sa_sigaction == &Handle;
    if (noted) SignalTable::Note(number, given);
  }
  struct sigaction kernels {};
  const int result = real.sigaction(number, action == nullptr ? nullptr : &installed, &kernels);
  if (result != 0) {
    if (noted) SignalTable::TakeBack(number);
    return result;
  }
  if (old != nullptr) *old = kernels.sa_sigaction == &Handle ? before : kernels;
  return result;
}

}  // namespace sdp::preload
