#include "preload/socket/restart.h"

#include <pthread.h>
#include <signal.h>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/guard.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/waiter.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

// Holds signals back, so that the thread can inspect them before their handlers run. Afterwards nothing tells
// which signals they were.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &application_);
    sigset_t deliverable{};  // all bytes: sigemptyset() leaves unused bits, and SignalFd() compares
    for (int number = 1; number < NSIG; ++number) {
      if (sigismember(&application_, number) == 0) sigaddset(&deliverable, number);
    }
    if (Waiter* const waiter = Waiter::AlsoAlone()) fd_ = waiter->SignalFd(deliverable);
  }
  ~HeldSignals() {  // also when the thread is cancelled
    const KeepErrno keep;
    pthread_sigmask(SIG_SETMASK, &application_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // Returns a descriptor that is readable while a held signal waits; -1 if no descriptor is left.
  [[nodiscard]] int fd() const { return fd_; }

  // Returns true if a held signal has a handler without SA_RESTART.
  [[nodiscard]] bool OneInterrupts() const {
    sigset_t pending;
    sigpending(&pending);
    for (int number = 1; number < NSIG; ++number) {
      if (sigismember(&pending, number) != 1 || sigismember(&application_, number) == 1) continue;
      if (InterruptsCalls(number)) return true;
    }
    return false;
  }

 private:
  sigset_t application_;
  int fd_ = -1;
};

}  // namespace

int PollOnce(pollfd* fds, nfds_t count, Time deadline) {
  timespec storage;
  const SleepMayBeCancelled here;
  return UnboundedPoll(fds, count, Remaining(deadline, &storage), nullptr);
}

int PollRestarting(pollfd* fds, nfds_t count, Time deadline) {
  while (MayCall(Call::kSignalMask)) {
    HeldSignals held;
    if (held.fd() < 0) break;
    fds[count] = {.fd = held.fd(), .events = POLLIN, .revents = 0};
    const int result = PollOnce(fds, count + 1, deadline);
    if (result <= 0 || fds[count].revents == 0) return result;
    if (result > 1) return result - 1;
    if (held.OneInterrupts()) return Fail(EINTR);
    // The handlers run now.
  }
  return PollOnce(fds, count, deadline);
}

bool InterruptsCalls(int signal) {
  struct sigaction action;
  if (real.sigaction(signal, nullptr, &action) != 0) return false;
  const bool handled =
      (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
  return handled && (action.sa_flags & SA_RESTART) == 0;
}

}  // namespace sdp::preload
