// SA_RESTART for calls that sleep on several descriptors, which the kernel never restarts.
#ifndef SDP_PRELOAD_SOCKET_RESTART_H_
#define SDP_PRELOAD_SOCKET_RESTART_H_

#include <poll.h>

#include "core/base/types.h"

namespace sdp::preload {

// As ppoll, but a signal handler installed with SA_RESTART runs and the sleep goes on; any other handler runs and ends it with EINTR.
// `fds` has room for one entry more than `count`. A sleep that may be cancelled.
int PollRestarting(pollfd* fds, nfds_t count, Time deadline);
// As ppoll, for any number of descriptors (unbounded_poll.h). A sleep that may be cancelled.
int PollOnce(pollfd* fds, nfds_t count, Time deadline);

// A handler of `signal` ends a call that sleeps with EINTR: there is one, and it was not installed with SA_RESTART.
bool InterruptsCalls(int signal);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_RESTART_H_
