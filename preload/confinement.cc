#include "preload/confinement.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>

#include "preload/critical.h"
#include "preload/guard.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

constinit std::atomic<bool> confined{false};

// What a call moves at most. A link that gave or took less is asked again when it is ready.
constexpr size_t kPiece = 16 * 1024;

// In place of MSG_DONTWAIT.
bool ReadyNow(int fd, short events) {
  pollfd link = {.fd = fd, .events = events, .revents = 0};
  const timespec zero{};
  if (real.ppoll(&link, 1, &zero, nullptr) > 0) return true;
  errno = EAGAIN;
  return false;
}

// In milliseconds, rounded up.
int Milliseconds(const timespec* time) {
  if (time == nullptr) return -1;
  if (time->tv_sec >= INT_MAX / 1000) return INT_MAX;
  return static_cast<int>(time->tv_sec * 1000 + (time->tv_nsec + 999'999) / 1'000'000);
}

}  // namespace

bool Confined() { return confined.load(std::memory_order_relaxed); }
void NoteConfinement() { confined.store(true, std::memory_order_relaxed); }

// What does not sleep is no cancellation point: what was half said to the link, or taken from it, would be lost with the thread.

ssize_t LinkRecv(int fd, void* buffer, size_t length, int flags) {
  if ((flags & MSG_DONTWAIT) == 0) {
    const SleepMayBeCancelled here;
    if (Critical::BreaksOff(fd)) [[unlikely]] {
      errno = EINTR;
      return -1;
    }
    return Confined() ? real.read(fd, buffer, length) : real.recv(fd, buffer, length, flags);
  }
  const NoCancellation no_cancellation;
  if (!Confined()) [[likely]]
    return real.recv(fd, buffer, length, flags);
  if (!ReadyNow(fd, POLLIN)) return -1;
  return real.read(fd, buffer, length);
}

ssize_t LinkRecvMessage(int fd, msghdr* message, int flags) {
  if (!Confined()) [[likely]] {
    if ((flags & MSG_DONTWAIT) == 0) {
      const SleepMayBeCancelled here;
      if (Critical::BreaksOff(fd)) [[unlikely]] {
        errno = EINTR;
        return -1;
      }
      return real.recvmsg(fd, message, flags);
    }
    const NoCancellation no_cancellation;
    return real.recvmsg(fd, message, flags);
  }
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

ssize_t LinkSend(int fd, const void* buffer, size_t length, int flags) {
  const NoCancellation no_cancellation;
  if (!Confined()) [[likely]]
    return real.send(fd, buffer, length, flags);
  // A piece fits where poll finds room, also on a blocking socket. SIGPIPE comes as the program's own write
  // would bring it.
  if (!ReadyNow(fd, POLLOUT)) return -1;
  return real.write(fd, buffer, std::min(length, kPiece));
}

ssize_t LinkSendMessage(int fd, const msghdr* message, int flags) {
  const NoCancellation no_cancellation;
  if (!Confined()) [[likely]]
    return real.sendmsg(fd, message, flags);
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

int WaitForEpoll(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask) {
  if (!Confined() || programs_epoll_call == EpollCall::kPwait2) [[likely]]
    return real.epoll_pwait2(epfd, events, max_events, timeout, mask);
  if (programs_epoll_call == EpollCall::kWait && mask == nullptr) return real.epoll_wait(epfd, events, max_events, Milliseconds(timeout));
  return real.epoll_pwait(epfd, events, max_events, Milliseconds(timeout), mask);
}

int LinkGetOption(int fd, int level, int name, void* value, socklen_t* length) {
  if (!Confined()) [[likely]]
    return real.getsockopt(fd, level, name, value, length);
  errno = ENOSYS;
  return -1;
}

int LinkSetOption(int fd, int level, int name, const void* value, socklen_t length) {
  if (!Confined()) [[likely]]
    return real.setsockopt(fd, level, name, value, length);
  errno = ENOSYS;
  return -1;
}

}  // namespace sdp::preload
