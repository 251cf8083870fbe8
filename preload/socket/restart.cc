#include "preload/socket/restart.h"

#include <errno.h>
#include <signal.h>

#include "preload/guard.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {

int PollOnce(pollfd* fds, nfds_t count, Time deadline) {
  timespec storage;
  const SleepMayBeCancelled here;
  return UnboundedPoll(fds, count, Remaining(deadline, &storage), nullptr);
}

int PollRestarting(pollfd* fds, nfds_t count, Time deadline) {
  const HandlerWatch handlers;
  int result;
  do {
    result = PollOnce(fds, count, deadline);
  } while (result < 0 && errno == EINTR && !handlers.Interrupts(/*restarts=*/true));
  return result;
}

bool InterruptsCalls(int signal) {
  struct sigaction action;
  if (real.sigaction(signal, nullptr, &action) != 0) return false;
  const bool handled =
      (action.sa_flags & SA_SIGINFO) != 0 || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
  return handled && (action.sa_flags & SA_RESTART) == 0;
}

}  // namespace sdp::preload
