// poll over SDP sockets and everything else.
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/readiness/poll_call.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {

bool PollConcernsUs(const pollfd* fds, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i) {
    if (fds[i].fd >= 0 && (FdTable::Has(fds[i].fd) || EpollKnows(fds[i].fd))) return true;
  }
  return false;
}

namespace {

// Returns whether there are more entries than the process may have descriptors: the kernel refuses those. No
// limit is so low that short calls would have to check it.
bool TooMany(nfds_t count) {
  constexpr nfds_t kNeverTooMany = 16;
  rlimit limit{};
  return count > kNeverTooMany && !Confined() && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
         count > limit.rlim_cur;
}

}  // namespace

int Poll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (TooMany(count)) return Fail(EINVAL);
  const Time deadline = DeadlineAfter(timeout);
  const auto plain = WaitWithoutSets(
      static_cast<int>(count), [&](int i) { return fds[i].fd >= 0 && FdTable::Has(fds[i].fd); },
      [&] {
        return Confined() ? UnboundedPoll(fds, count, timeout, mask) : real.ppoll(fds, count, timeout, mask);
      });
  if (plain) return *plain;
  pthread_testcancel();
  const CancelledInSleepsOnly whole;
  return PollCall(fds, count).Run(deadline, mask);
}

}  // namespace sdp::preload
