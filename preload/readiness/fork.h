#ifndef SDP_PRELOAD_READINESS_FORK_H_
#define SDP_PRELOAD_READINESS_FORK_H_

namespace sdp::preload {

// Around fork(): no thread is half-way through a change of the epoll sets. The table's lock comes before the
// sockets', the sets' own after them.
void LockEpollTableForFork();
void LockEpollSetsForFork();
void UnlockReadinessAfterFork();
// In the child, before that.
void DisownEpollSetsAfterFork();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_FORK_H_
