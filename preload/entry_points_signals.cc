// Installing signal handlers: each stands behind Critical::Handle.
#include <atomic>

#include "preload/critical.h"
#include "preload/entry_points.h"

namespace sdp::preload {
namespace {

// Signals whose handlers interrupt calls, set by siginterrupt(); holds for handlers that signal() installs
// later, too.
constinit std::atomic<bool> interrupts[NSIG] = {};

sighandler_t Install(int number, sighandler_t handler, int flags) {
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (handler == SIG_ERR) {
    errno = EINVAL;
    return SIG_ERR;
  }
  return Critical::SetAction(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

}  // namespace

int SDP_ENTRY(sigaction)(int number, const struct sigaction* action, struct sigaction* old) noexcept {
  return Critical::SetAction(number, action, old);
}

// BSD's version: calls are restarted, the handler stays.
sighandler_t SDP_ENTRY(signal)(int number, sighandler_t handler) noexcept {
  const bool restarts = number <= 0 || number >= NSIG || !interrupts[number];
  return Install(number, handler, restarts ? SA_RESTART : 0);
}

// The C library's own function asks and tells the kernel without sigaction.
int SDP_ENTRY(siginterrupt)(int number, int interrupt) noexcept {
  struct sigaction action {};
  if (Critical::SetAction(number, nullptr, &action) != 0) return -1;
  interrupts[number] = interrupt != 0;
  action.sa_flags = interrupt != 0 ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
  return Critical::SetAction(number, &action, nullptr);
}

// System V's version, for programs that ask for nothing but X/Open.
sighandler_t SDP_ENTRY(__sysv_signal)(int number, sighandler_t handler) noexcept {
  return Install(number, handler, static_cast<int>(SA_RESETHAND) | SA_NODEFER);
}

// System V's other function, which reports and changes whether the signal is blocked.
sighandler_t SDP_ENTRY(sigset)(int number, sighandler_t disposition) noexcept {
  struct sigaction old {};
  sigset_t it, mask;
  sigemptyset(&it);
  if (sigaddset(&it, number) != 0) return SIG_ERR;
  if (disposition == SIG_HOLD) {
    if (Critical::SetAction(number, nullptr, &old) != 0) return SIG_ERR;
  } else {
    old.sa_handler = Install(number, disposition, 0);
    if (old.sa_handler == SIG_ERR) return SIG_ERR;
  }
  if (pthread_sigmask(disposition == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &it, &mask) != 0) return SIG_ERR;
  return sigismember(&mask, number) == 1 ? SIG_HOLD : old.sa_handler;
}

SDP_ENTRY_ALIAS(__sigaction, sigaction);
SDP_ENTRY_ALIAS(bsd_signal, signal);
SDP_ENTRY_ALIAS(ssignal, signal);
SDP_ENTRY_ALIAS(sysv_signal, __sysv_signal);

}  // namespace sdp::preload
