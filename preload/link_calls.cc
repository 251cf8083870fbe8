#include "preload/link_calls.h"

#include <errno.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstring>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// The most that one call moves. A link that gave or took less is asked again when it is ready.
constexpr size_t kPiece = 16 * 1024;

// The kernel, or a sandbox, does not know epoll_pwait2, which came with Linux 5.11.
constinit std::atomic<bool> without_pwait2{false};

// Stands in for MSG_DONTWAIT.
bool ReadyNow(int fd, short events) {
  if (const SocketRef socket = FdTable::Get(fd); socket && socket->DoesNotBlock())
    return true;  // the call on it reports EAGAIN itself
  pollfd link = {.fd = fd, .events = events, .revents = 0};
  const timespec zero{};
  int ready;
  if (!MayCall(Call::kPpoll) && MayCall(Call::kPoll)) {
    ready = real.poll(&link, 1, 0);
  } else if (!MayCall(Call::kPpoll) && MayCall(Call::kSelect) && fd < FD_SETSIZE) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    ready = real.pselect(fd + 1, (events & POLLIN) != 0 ? &set : nullptr,
                         (events & POLLOUT) != 0 ? &set : nullptr, nullptr, &zero, nullptr);
  } else if (MayCall(Call::kPpoll)) {
    ready = real.ppoll(&link, 1, &zero, nullptr);
  } else {
    ready = 1;  // the filter allows none of these; a socket that does not block may be closed by now
  }
  if (ready > 0) return true;
  errno = EAGAIN;
  return false;
}

ssize_t Read(int fd, void* buffer, size_t length, int flags) {
  iovec piece{.iov_base = buffer, .iov_len = length};
  if (MayCall(Call::kRecv)) return real.recv(fd, buffer, length, flags);
  if (MayCall(Call::kRecvmsg)) {
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return real.recvmsg(fd, &message, flags);
  }
  if ((flags & MSG_DONTWAIT) != 0 && !ReadyNow(fd, POLLIN)) return -1;
  return MayCall(Call::kRead) ? real.read(fd, buffer, length) : real.readv(fd, &piece, 1);
}

// With write, SIGPIPE comes as from the program's own write.
ssize_t Write(int fd, const void* buffer, size_t length, int flags) {
  iovec piece{.iov_base = const_cast<void*>(buffer), .iov_len = std::min(length, kPiece)};
  if (MayCall(Call::kSend)) return real.send(fd, buffer, length, flags);
  if (MayCall(Call::kSendmsg)) {
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return real.sendmsg(fd, &message, flags);
  }
  // A piece fits where there is room, even on a blocking socket.
  if (!ReadyNow(fd, POLLOUT)) return -1;
  return MayCall(Call::kWrite) ? real.write(fd, buffer, piece.iov_len) : real.writev(fd, &piece, 1);
}

}  // namespace

int ToMilliseconds(const timespec* time) {
  if (time == nullptr) return -1;
  if (time->tv_sec >= INT_MAX / 1000) return INT_MAX;
  return static_cast<int>(time->tv_sec * 1000 + (time->tv_nsec + 999'999) / 1'000'000);
}

// No cancellation points: bytes half written to the link, or just taken from it, would be lost with the
// thread.
ssize_t LinkRecv(int fd, void* buffer, size_t length, int flags) {
  const NoCancellation no_cancellation;
  return Confined() ? Read(fd, buffer, length, flags) : real.recv(fd, buffer, length, flags);
}

// For filters that allow no call with several pieces. Apart because of its stack: threads with stacks of 64
// KiB send and receive.
[[gnu::noinline]] static ssize_t ReceiveInOnePiece(int fd, const msghdr* message, int flags) {
  std::byte piece[kPiece];
  size_t room = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) room += message->msg_iov[i].iov_len;
  const ssize_t n = LinkRecv(fd, piece, std::min(room, sizeof piece), flags);
  size_t done = 0;
  for (size_t i = 0; n > 0 && done < static_cast<size_t>(n); ++i) {
    const iovec& part = message->msg_iov[i];
    const size_t size = std::min(part.iov_len, static_cast<size_t>(n) - done);
    std::memcpy(part.iov_base, piece + done, size);
    done += size;
  }
  return n;
}

ssize_t LinkRecvMessage(int fd, msghdr* message, int flags) {
  if (Confined()) [[unlikely]]
    return ReceiveInOnePiece(fd, message, flags);
  const NoCancellation no_cancellation;
  return real.recvmsg(fd, message, flags);
}

ssize_t LinkSend(int fd, const void* buffer, size_t length, int flags) {
  const NoCancellation no_cancellation;
  return Confined() ? Write(fd, buffer, length, flags) : real.send(fd, buffer, length, flags);
}

[[gnu::noinline]] static ssize_t SendInOnePiece(int fd, const msghdr* message, int flags) {
  std::byte piece[kPiece];
  size_t size = 0;
  for (size_t i = 0; i < message->msg_iovlen && size < sizeof piece; ++i) {
    const iovec& part = message->msg_iov[i];
    const size_t taken = std::min(part.iov_len, sizeof piece - size);
    std::memcpy(piece + size, part.iov_base, taken);
    size += taken;
  }
  return LinkSend(fd, piece, size, flags);
}

ssize_t LinkSendMessage(int fd, const msghdr* message, int flags) {
  const NoCancellation no_cancellation;
  return Confined() ? SendInOnePiece(fd, message, flags) : real.sendmsg(fd, message, flags);
}

// If the filter forbids the call, the link ends when its descriptor is closed.
int LinkShutdown(int fd, int how) { return MayCall(Call::kShutdown) ? real.shutdown(fd, how) : 0; }

int LinkConnect(int fd, const sockaddr* address, socklen_t length) {
  if (!MayCall(Call::kConnect)) return Fail(ENOSYS);
  // The system call itself, which is no cancellation point.
  return static_cast<int>(syscall(SYS_connect, fd, address, length));
}

int WaitForEpoll(int epfd, epoll_event* events, int max_events, const timespec* timeout,
                 const sigset_t* mask) {
  if (!without_pwait2.load(std::memory_order_relaxed) &&
      (!Confined() || programs_epoll_call == EpollCall::kPwait2)) [[likely]] {
    const int before = errno;
    const int result = real.epoll_pwait2(epfd, events, max_events, timeout, mask);
    if (result >= 0 || (errno != ENOSYS && errno != EPERM)) [[likely]]
      return result;
    without_pwait2.store(true, std::memory_order_relaxed);
    errno = before;
  }
  if (programs_epoll_call == EpollCall::kWait && mask == nullptr)
    return real.epoll_wait(epfd, events, max_events, ToMilliseconds(timeout));
  return real.epoll_pwait(epfd, events, max_events, ToMilliseconds(timeout), mask);
}

int LinkGetOption(int fd, int level, int name, void* value, socklen_t* length) {
  if (!Confined()) [[likely]]
    return real.getsockopt(fd, level, name, value, length);
  return Fail(ENOSYS);
}

int LinkSetOption(int fd, int level, int name, const void* value, socklen_t length) {
  if (!Confined()) [[likely]]
    return real.setsockopt(fd, level, name, value, length);
  return Fail(ENOSYS);
}

}  // namespace sdp::preload
