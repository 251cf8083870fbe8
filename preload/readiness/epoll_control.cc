// epoll_ctl on an epoll set, and the registrations' fate when descriptors close.
#include <algorithm>
#include <utility>

#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/readiness/epoll_set.h"
#include "preload/socket/watch.h"
#include "preload/user_memory.h"

namespace sdp::preload {

int EpollSet::Control(int epfd, int operation, int fd, epoll_event* event) {
  const SocketRef ref = FdTable::Get(fd);
  if (!ref) return static_cast<int>(kPassThrough);
  StreamSocket* const socket = &Stream(ref);
  const bool nowhere = !MayRead(event, sizeof *event);
  if (socket->listening()) {
    if (operation == EPOLL_CTL_MOD && !nowhere) listeners_.Arm(fd);  // before the kernel may report it
    return listeners_.Control(epfd, operation, fd, fd, socket, event, Watch(*socket).GetReadiness());
  }
  switch (operation) {
    case EPOLL_CTL_ADD:
      return nowhere ? Fail(EFAULT) : Add(fd, socket, *event);
    case EPOLL_CTL_MOD:
      return nowhere ? Fail(EFAULT) : Modify(fd, *event);
    case EPOLL_CTL_DEL:
      return Delete(fd);
    default:
      return Fail(nowhere ? EFAULT : EINVAL);
  }
}

bool EpollSet::HasData(uint64_t data) {
  std::lock_guard lock(mutex_);
  return sockets_.HasData(data) || listeners_.HasData(data);
}

int EpollSet::Add(int fd, StreamSocket* socket, const epoll_event& event) {
  constexpr uint32_t kWithExclusive =
      EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
  if ((event.events & EPOLLEXCLUSIVE) != 0 && (event.events & ~kWithExclusive) != 0) return Fail(EINVAL);
  {
    std::lock_guard lock(mutex_);
    if (!sockets_.Add(fd, socket, {.events = event.events, .data = event.data}, !kick_.heard()))
      return Fail(EEXIST);
    kick_.Give();
  }
  // kPlain: the socket fell back to TCP just now, before it knew of this set. Else another thread's wait may
  // have asked it already, and nothing tells what a third one has taken off the link since.
  if (Watch(*socket).AddObserver(this, fd) == StreamSocket::State::kPlain) {
    OnPlain(fd);
  } else if (kick_.heard()) {
    OnChange(fd);
  }
  return 0;
}

int EpollSet::Modify(int fd, const epoll_event& event) {
  if ((event.events & EPOLLEXCLUSIVE) != 0) return Fail(EINVAL);
  std::lock_guard lock(mutex_);
  Entry* const entry = sockets_.Find(fd);
  if (entry == nullptr) return Fail(ENOENT);
  if ((entry->asked.events & EPOLLEXCLUSIVE) != 0) return Fail(EINVAL);
  sockets_.Change(fd, *entry, event, !kick_.heard());
  kick_.Give();
  return 0;
}

int EpollSet::Delete(int fd) {
  SocketRef socket;
  {
    std::lock_guard lock(mutex_);
    Entry* const entry = sockets_.Find(fd);
    if (entry == nullptr) return Fail(ENOENT);
    socket = std::move(entry->socket);
  }
  Watch(Stream(socket)).RemoveObserver(this, fd);
  return 0;
}

void EpollSet::Forget(int fd) {
  Asked asked;
  SocketRef socket;
  {
    std::lock_guard lock(mutex_);
    socket = sockets_.TakeOut(fd, &asked);
  }
  if (socket) {
    StreamSocket* const stream = &Stream(socket);
    Watch(*stream).RemoveObserver(this, fd);
    const int duplicate = stream->OtherDescriptor(fd);
    if (duplicate >= 0) KeepForDuplicate(duplicate, std::move(socket), asked);
  }
  Registrations::Sockets orphans;
  {
    std::lock_guard lock(mutex_);
    orphans = sockets_.Orphans();
  }
  for (const auto& [key, orphan] : orphans) {
    if (Stream(orphan).OtherDescriptor(fd) < 0) Drop(key);
  }
  listeners_.Forget(fd);
}

// The number is closed, the socket is not. The registration continues, out of epoll_ctl's reach.
void EpollSet::KeepForDuplicate(int duplicate, SocketRef socket, const Asked& asked) {
  const int link = HiddenFds::Duplicate(duplicate);
  if (link < 0) return;
  StreamSocket* const stream = &Stream(socket);
  int key;
  {
    std::lock_guard lock(mutex_);
    key = sockets_.AddOrphan(std::move(socket), asked, link);
    kick_.Give();
  }
  if (Watch(*stream).AddObserver(this, key) == StreamSocket::State::kPlain) OnPlain(key);
}

void EpollSet::Drop(int key) {
  int link = -1;
  SocketRef socket;
  {
    std::lock_guard lock(mutex_);
    socket = sockets_.Drop(key, &link);
  }
  if (!socket) return;
  Watch(Stream(socket)).RemoveObserver(this, key);
  HiddenFds::Close(link);
}

}  // namespace sdp::preload
