// SA_RESTART for calls that sleep on several descriptors, which the kernel never restarts. For the calling
// thread; has no lock.
#ifndef SDP_PRELOAD_SOCKET_RESTART_H_
#define SDP_PRELOAD_SOCKET_RESTART_H_

#include <poll.h>

#include "core/base/types.h"
#include "preload/critical.h"

namespace sdp::preload {

// As ppoll, except that a signal handler installed with SA_RESTART runs and the sleep continues. Any other
// handler runs and ends the sleep with EINTR. A sleep that may be cancelled.
int PollRestarting(pollfd* fds, nfds_t count, Time deadline);
// As ppoll, for any number of descriptors (unbounded_poll.h). A sleep that may be cancelled.
int PollOnce(pollfd* fds, nfds_t count, Time deadline);

// Handlers end a sleep in the kernel with EINTR, but not the call's work before the sleep. So the call
// watches for handlers itself: for those of the thread that makes this object.
class HandlerWatch {
 public:
  HandlerWatch() : before_(Critical::handled()) {}
  // Returns whether a handler has run since. `restarts`: only one installed without SA_RESTART counts.
  [[nodiscard]] bool Interrupts(bool restarts) const {
    const Critical::Handled now = Critical::handled();
    return restarts ? now.interrupting != before_.interrupting : now.all != before_.all;
  }

 private:
  Critical::Handled before_;
};

// Returns true if `signal` ends a sleeping call with EINTR: its handler was installed without SA_RESTART.
bool InterruptsCalls(int signal);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_RESTART_H_
