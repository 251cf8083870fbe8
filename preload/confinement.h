// A process that has shut itself off from most system calls with a seccomp filter, as the OpenSSH server's
// network child does. The filter is made for what the program does with TCP: it reads, writes, polls, sleeps,
// shuts down and closes. The library asks for no more than that then: no sendmsg, fcntl, eventfd, clone or
// unlink. What cannot be had so, is not done: others that share a connection pass for alive, no helper thread
// starts, stats files stay until somebody finds them stale.
//
// Filters are seen that are set by prctl(). One set by the bare system call is not.
#ifndef SDP_PRELOAD_CONFINEMENT_H_
#define SDP_PRELOAD_CONFINEMENT_H_

#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#include <cstdint>

namespace sdp::preload {

// A thread of this process has set a filter.
bool Confined();
void NoteConfinement();

// The socket room's: what has to be known or mapped before. In the thread that is about to set the filter.
void PrepareConfinement();

// The embedded RNIC's calls on its links: the real ones, in a confined process made of read, write and ppoll.
ssize_t LinkRecv(int fd, void* buffer, size_t length, int flags);
ssize_t LinkSend(int fd, const void* buffer, size_t length, int flags);
ssize_t LinkRecvMessage(int fd, msghdr* message, int flags);
ssize_t LinkSendMessage(int fd, const msghdr* message, int flags);
// Waits for an epoll descriptor as long as `timeout` says, null: for ever. In a confined process by the call that the program makes in this thread,
// which may be the only one that its filter knows: to the millisecond then, rounded up.
enum class EpollCall : uint8_t { kWait, kPwait, kPwait2 };
inline thread_local EpollCall programs_epoll_call __attribute__((tls_model("initial-exec"))) = EpollCall::kWait;
int WaitForEpoll(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask);

int LinkGetOption(int fd, int level, int name, void* value, socklen_t* length);
int LinkSetOption(int fd, int level, int name, const void* value, socklen_t length);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFINEMENT_H_
