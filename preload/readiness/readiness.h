// poll, select and epoll over any mix of SDP sockets, listeners and other descriptors. The entry points call
// these only if the library has managed sockets, or if the epoll descriptor has an EpollSet. Results and
// errno are those of the system calls. Any thread may call these.
#ifndef SDP_PRELOAD_READINESS_READINESS_H_
#define SDP_PRELOAD_READINESS_READINESS_H_

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

#include "absl/functional/function_ref.h"

namespace sdp::preload {

// Returns whether any of the descriptors is a managed socket or an epoll descriptor, which may get an
// EpollSet before the call ends. If not, the caller makes the real call. Works before the first managed
// socket, too.
bool PollConcernsUs(const pollfd* fds, nfds_t count);
// `timeout` is relative; null waits for ever. `mask` is as for ppoll and may be null.
int Poll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);

bool SelectConcernsUs(int count, const fd_set* read, const fd_set* write, const fd_set* except);
// Handles more than FD_SETSIZE descriptors. `remaining`, if not null, receives what is left of the time-out.
int Select(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
           const sigset_t* mask, timespec* remaining);

// EpollCtl and EpollWait return kPassThrough (-2) if the caller is to make the real call.
int EpollCtl(int epfd, int operation, int fd, epoll_event* event);
int EpollWait(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask);
// EpollWait while there is no managed socket yet. `wait` makes the real call that the program asked for.
// Managed sockets may exist when that call returns.
int EpollWaitBeforeSockets(int epfd, epoll_event* events, int max_events, const timespec* timeout,
                           const sigset_t* mask, absl::FunctionRef<int()> wait);
// Returns whether `fd` is an epoll descriptor that this process has created, or one with an EpollSet.
bool EpollKnows(int fd);
// Returns whether this process has created any epoll descriptor.
bool HaveEpolls();
// `epfd` is the result of epoll_create. The next two also accept numbers that are no epoll descriptors. None
// of the three allocates before the first managed socket.
void EpollCreated(int epfd);
// A descriptor number goes away (close, dup2 over it) or is duplicated. Applies to epoll descriptors and to
// everything registered in them.
void EpollForget(int fd);
void EpollDuplicate(int old_fd, int new_fd);

// Locks around fork(), so that no thread is half-way through a change of the epoll sets. The lock order is:
// the table, the sockets, the sets.
void LockEpollTableForFork();
void LockEpollSetsForFork();
void UnlockReadinessAfterFork();
// Call in the child, before UnlockReadinessAfterFork().
void DisownEpollSetsAfterFork();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_READINESS_H_
