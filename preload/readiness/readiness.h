// poll, select and epoll over SDP sockets, listeners and everything else, mixed. The entry points call these
// only when the library has managed sockets at all (or the epoll descriptor has an EpollSet); results and
// errno are those of the system calls.
#ifndef SDP_PRELOAD_READINESS_READINESS_H_
#define SDP_PRELOAD_READINESS_READINESS_H_

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

namespace sdp::preload {

// True if any of the descriptors is a managed socket or an epoll descriptor, which may have an EpollSet
// before the call ends: else the real call is right. Before the first managed socket, too.
bool PollConcernsUs(const pollfd* fds, nfds_t count);
// `timeout`: relative; null waits for ever. `mask`: as ppoll's, may be null.
int Poll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);

bool SelectConcernsUs(int count, const fd_set* read, const fd_set* write, const fd_set* except);
// Works on more than FD_SETSIZE descriptors internally. `remaining`: if not null, receives what is left of
// the time-out.
int Select(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
           const sigset_t* mask, timespec* remaining);

// kPassThrough (-2) from EpollCtl and EpollWait: the real call is right.
int EpollCtl(int epfd, int operation, int fd, epoll_event* event);
int EpollWait(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask);
// EpollWait while there is no managed socket yet: `wait(arguments)` is the real call that the program has
// made; it may come back to sockets of ours.
int EpollWaitBeforeSockets(int epfd, epoll_event* events, int max_events, const timespec* timeout,
                           const sigset_t* mask, int (*wait)(void* arguments), void* arguments);
// An epoll descriptor: one that this process has created, or one with an EpollSet.
bool EpollKnows(int fd);
// Any epoll descriptor was created in this process.
bool HaveEpolls();
// What epoll_create returned. The next two are for numbers that are no epoll descriptors, too; none allocates
// before the first managed socket.
void EpollCreated(int epfd);
// A descriptor number goes away (close, dup2 over it) or is duplicated; for epoll descriptors and for
// everything registered.
void EpollForget(int fd);
void EpollDuplicate(int old_fd, int new_fd);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_READINESS_H_
