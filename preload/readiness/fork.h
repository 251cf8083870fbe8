#ifndef SDP_PRELOAD_READINESS_FORK_H_
#define SDP_PRELOAD_READINESS_FORK_H_

namespace sdp::preload {

// Around fork(): no thread is half-way through a change of the epoll sets.
void LockReadinessForFork();
void UnlockReadinessAfterFork();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_FORK_H_
