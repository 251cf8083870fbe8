// The library's system calls on links and epoll descriptors. In a confined process (allowed_calls.h) each
// takes a form that the process's filter allows; elsewhere it is the call of its name. Any thread may call
// these.
#ifndef SDP_PRELOAD_LINK_CALLS_H_
#define SDP_PRELOAD_LINK_CALLS_H_

#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include <cstdint>

namespace sdp::preload {

// The embedded RNIC's calls on its links.
ssize_t LinkRecv(int fd, void* buffer, size_t length, int flags);
ssize_t LinkSend(int fd, const void* buffer, size_t length, int flags);
ssize_t LinkRecvMessage(int fd, msghdr* message, int flags);
ssize_t LinkSendMessage(int fd, const msghdr* message, int flags);
int LinkShutdown(int fd, int how);
int LinkConnect(int fd, const sockaddr* address, socklen_t length);
int LinkGetOption(int fd, int level, int name, void* value, socklen_t* length);
int LinkSetOption(int fd, int level, int name, const void* value, socklen_t length);

// Waits for an epoll descriptor as long as `timeout` says; null: for ever. A confined process makes the call
// that the program makes in this thread, since its filter may know no other. The time-out is then rounded up
// to the millisecond, except for kPwait2.
enum class EpollCall : uint8_t { kWait, kPwait, kPwait2 };
inline thread_local EpollCall programs_epoll_call __attribute__((tls_model("initial-exec"))) =
    EpollCall::kWait;
int WaitForEpoll(int epfd, epoll_event* events, int max_events, const timespec* timeout,
                 const sigset_t* mask);
// Converts a time-out for those calls: milliseconds, rounded up; -1 for null.
int ToMilliseconds(const timespec* time);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_LINK_CALLS_H_
