#ifndef SDP_PRELOAD_READINESS_FORK_H_
#define SDP_PRELOAD_READINESS_FORK_H_

namespace sdp::preload {

// Locks around fork(), so that no thread is half-way through a change of the epoll sets. The lock order is:
// the table, the sockets, the sets.
void LockEpollTableForFork();
void LockEpollSetsForFork();
void UnlockReadinessAfterFork();
// Call in the child, before UnlockReadinessAfterFork().
void DisownEpollSetsAfterFork();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_FORK_H_
