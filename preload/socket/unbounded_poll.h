// ppoll for a process that may hardly have descriptors any more: the kernel refuses a poll of more entries
// than RLIMIT_NOFILE allows descriptors, open or not, while a read or a select goes on as ever. Servers lower
// the limit to nothing for a child that only talks.
#ifndef SDP_PRELOAD_SOCKET_UNBOUNDED_POLL_H_
#define SDP_PRELOAD_SOCKET_UNBOUNDED_POLL_H_

#include <poll.h>
#include <signal.h>
#include <time.h>

namespace sdp::preload {

// As ppoll; by pselect where that says EINVAL. In a confined process by the call that its filter knows. A
// cancellation point.
int UnboundedPoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_UNBOUNDED_POLL_H_
