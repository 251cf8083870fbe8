// poll, select and epoll over SDP sockets, listeners and everything else, mixed. The entry points call these only when the library
// has managed sockets at all (or the epoll descriptor has an EpollSet); results and errno are those of the system calls.
#ifndef SDP_PRELOAD_READINESS_READINESS_H_
#define SDP_PRELOAD_READINESS_READINESS_H_

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

namespace sdp::preload {

// True if any of the descriptors is a managed socket or an epoll descriptor with an EpollSet: else the real call is right.
bool PollConcernsUs(const pollfd* fds, nfds_t count);
// `timeout`: relative; null waits for ever. `mask`: as ppoll's, may be null.
int Poll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);

bool SelectConcernsUs(int count, const fd_set* read, const fd_set* write, const fd_set* except);
// Works on more than FD_SETSIZE descriptors internally. `remaining`: if not null, receives what is left of the time-out.
int Select(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout, const sigset_t* mask,
           timespec* remaining);

// kPassThrough (-2) from EpollCtl and EpollWait: the real call is right.
int EpollCtl(int epfd, int operation, int fd, epoll_event* event);
int EpollWait(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask);
// An epoll descriptor with an EpollSet.
bool EpollKnows(int fd);
// A descriptor number goes away (close, dup2 over it) or is duplicated; for epoll descriptors and for everything registered.
void EpollForget(int fd);
void EpollDuplicate(int old_fd, int new_fd);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_READINESS_H_
