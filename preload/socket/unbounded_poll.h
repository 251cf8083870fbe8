// ppoll for a process that may have hardly any descriptors. The kernel refuses a poll of more entries than
// RLIMIT_NOFILE allows descriptors, open or not; a read or a select still works. Servers lower the limit to
// nothing for a child that only talks.
#ifndef SDP_PRELOAD_SOCKET_UNBOUNDED_POLL_H_
#define SDP_PRELOAD_SOCKET_UNBOUNDED_POLL_H_

#include <poll.h>
#include <signal.h>
#include <time.h>

namespace sdp::preload {

// As ppoll; uses pselect if ppoll fails with EINVAL. A confined process uses the call that its filter allows.
// A cancellation point.
int UnboundedPoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_UNBOUNDED_POLL_H_
