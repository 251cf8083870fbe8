// SA_RESTART for calls that sleep on several descriptors, which the kernel never restarts.
#ifndef SDP_PRELOAD_SOCKET_RESTART_H_
#define SDP_PRELOAD_SOCKET_RESTART_H_

#include <poll.h>

#include "core/base/types.h"
#include "preload/critical.h"

namespace sdp::preload {

// As ppoll, but a signal handler installed with SA_RESTART runs and the sleep goes on; any other handler runs
// and ends it with EINTR. `fds` has room for one entry more than `count`. A sleep that may be cancelled.
int PollRestarting(pollfd* fds, nfds_t count, Time deadline);
// As ppoll, for any number of descriptors (unbounded_poll.h). A sleep that may be cancelled.
int PollOnce(pollfd* fds, nfds_t count, Time deadline);

// Handlers end a sleep in the kernel with EINTR; what a call does before it they do not end. So the call
// watches for them: of the thread that makes this.
class HandlerWatch {
 public:
  HandlerWatch() : before_(Critical::handled()) {}
  // One has run since. `restarts`: one that was not installed with SA_RESTART.
  [[nodiscard]] bool Interrupts(bool restarts) const {
    const Critical::Handled now = Critical::handled();
    return restarts ? now.interrupting != before_.interrupting : now.all != before_.all;
  }

 private:
  Critical::Handled before_;
};

// A handler of `signal` ends a call that sleeps with EINTR: there is one, and it was not installed with
// SA_RESTART.
bool InterruptsCalls(int signal);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_RESTART_H_
