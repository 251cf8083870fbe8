// ppoll for a process that may have hardly any descriptors. The kernel refuses a poll of more entries than
// RLIMIT_NOFILE allows descriptors, open or not; a read or a select still works. Servers lower the limit to
// nothing for a child that only talks.
#ifndef SDP_PRELOAD_UNBOUNDED_POLL_H_
#define SDP_PRELOAD_UNBOUNDED_POLL_H_

#include <poll.h>
#include <signal.h>
#include <time.h>

#include "preload/socket/clock.h"

namespace sdp::preload {

// As ppoll; uses pselect if ppoll fails with EINVAL. A confined process uses the call that its filter allows.
// A cancellation point.
int UnboundedPoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);

// Sleeps, less than a second. After a stop (SIGSTOP) the kernel goes on with nanosleep by a call of its own,
// restart_syscall, and a confined process would end by that. So this function polls nothing.
void Pause(Duration duration);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_UNBOUNDED_POLL_H_
