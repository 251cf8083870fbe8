// A socket room and a readiness room that do what the kernel does, by asking it: with them, the shell of the
// library is the only thing between a program and its plain TCP sockets.
#include "preload/confinement.h"
#include "preload/fd_table.h"
#include "preload/inheritance.h"
#include "preload/process_life.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/background.h"
#include "preload/socket/socket.h"
#include "verbs/softiwarp/link_calls.h"

namespace sdp::preload {
namespace {

msghdr Message(const iovec* iov, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(iov);
  message.msg_iovlen = count;
  return message;
}

class TransparentSocket final : public Socket {
 public:
  ssize_t Send(int fd, const iovec* iov, size_t count, int flags) override {
    const msghdr message = Message(iov, count);
    return real.sendmsg(fd, &message, flags);
  }
  ssize_t Receive(int fd, const iovec* iov, size_t count, int flags, int* out_flags) override {
    msghdr message = Message(iov, count);
    const ssize_t received = real.recvmsg(fd, &message, flags);
    if (out_flags != nullptr) *out_flags = message.msg_flags;
    return received;
  }
  int Bind(int fd, const sockaddr* address, socklen_t length) override {
    return real.bind(fd, address, length);
  }
  int Listen(int fd, int backlog) override { return real.listen(fd, backlog); }
  int Connect(int fd, const sockaddr* address, socklen_t length) override {
    return real.connect(fd, address, length);
  }
  int Accept(int fd, sockaddr* address, socklen_t* length, int flags, SocketRef* connection) override {
    const int accepted = real.accept4(fd, address, length, flags);
    if (accepted >= 0) *connection = SocketRef(Socket::New(AF_INET, accepted));
    return accepted;
  }
  int Shutdown(int fd, int how) override { return real.shutdown(fd, how); }
  int GetSockName(int fd, sockaddr* address, socklen_t* length) override {
    return real.getsockname(fd, address, length);
  }
  int GetPeerName(int fd, sockaddr* address, socklen_t* length) override {
    return real.getpeername(fd, address, length);
  }
  int GetSockOpt(int fd, int level, int name, void* value, socklen_t* length) override {
    return real.getsockopt(fd, level, name, value, length);
  }
  int SetSockOpt(int fd, int level, int name, const void* value, socklen_t length) override {
    return real.setsockopt(fd, level, name, value, length);
  }
  int Ioctl(int fd, unsigned long request, void* argument) override {
    return real.ioctl(fd, request, argument);
  }
  int Close(int fd) override { return real.close(fd); }
  void AddDescriptor(int) override {}
  bool MoveDescriptor(int, int) override { return true; }
};

}  // namespace

Socket* Socket::New(int, int) { return new TransparentSocket; }

bool PollConcernsUs(const pollfd*, nfds_t) { return true; }
int Poll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  return real.ppoll(fds, count, timeout, mask);
}
bool SelectConcernsUs(int, const fd_set*, const fd_set*, const fd_set*) { return true; }
int Select(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
           const sigset_t* mask, timespec* remaining) {
  timespec before{};
  clock_gettime(CLOCK_MONOTONIC, &before);
  const int result = real.pselect(count, read, write, except, timeout, mask);
  if (remaining != nullptr) {
    timespec after{};
    clock_gettime(CLOCK_MONOTONIC, &after);
    const Duration left = std::chrono::seconds(timeout->tv_sec - after.tv_sec + before.tv_sec) +
                          Duration(timeout->tv_nsec - after.tv_nsec + before.tv_nsec);
    *remaining =
        left.count() > 0 ? timespec{left.count() / 1'000'000'000, left.count() % 1'000'000'000} : timespec{};
  }
  return result;
}
int EpollCtl(int epfd, int operation, int fd, epoll_event* event) {
  return real.epoll_ctl(epfd, operation, fd, event);
}
int EpollWait(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask) {
  return real.epoll_pwait2(epfd, events, max_events, timeout, mask);
}
int EpollWaitBeforeSockets(int, epoll_event*, int, const timespec*, const sigset_t*,
                           absl::FunctionRef<int()> wait) {
  return wait();
}
bool HaveEpolls() { return false; }
void Background::FollowNumbers() {}
void EpollCreated(int) {}
bool EpollKnows(int) { return false; }
void EpollForget(int) {}
void EpollDuplicate(int, int) {}

void LockEpollTableForFork() {}
void LockEpollSetsForFork() {}
void DisownEpollSetsAfterFork() {}
void UnlockReadinessAfterFork() {}

void SetReadinessAtFork(const ReadinessAtFork&) {}
void PrepareFork() {}
void ParentAfterFork() {}
void ChildAfterFork() {}
void ProcessExit() {}
void ProcessExitAtOnce() {}
bool BeforeCallOfOneThread() { return true; }
void AfterCallOfOneThread() {}
void PrepareConfinement() {}
void ConfinementRefused() {}

void FinishBeforeExec() {}
void AwaitConnects() {}
bool HasLingering() { return false; }
int SealSockets(Heirloom, Giver) { return -1; }
void LockSockets() {}
void UnlockSockets() {}
bool SettleConnects(const std::vector<int>&) { return true; }
int SealSocket(int, Receiver) { return -1; }
bool RelativesShare() { return false; }
bool IsSealedSocket(int) { return false; }
void AdoptSocket(int) {}
bool IsConnection(Socket&) { return false; }
bool IsSharedWithOthers(int) { return false; }
void AdoptSockets(int) {}

}  // namespace sdp::preload

namespace sdp::iwarp {
void SetLinkCalls(const LinkCalls&) {}
}  // namespace sdp::iwarp
