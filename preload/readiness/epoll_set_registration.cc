// epoll_ctl on an epoll set, and what becomes of registrations when descriptors close.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/readiness/epoll_set.h"
#include "preload/real_calls.h"
#include "preload/user_memory.h"

namespace sdp::preload {
int EpollSet::Control(int epfd, int operation, int fd, epoll_event* event) {
  const SocketRef ref = FdTable::Get(fd);
  if (!ref) return static_cast<int>(kPassThrough);
  auto* const socket = static_cast<StreamSocket*>(ref.get());
  const bool nowhere = !MayRead(event, sizeof *event);
  if (socket->listening()) {
    if (operation == EPOLL_CTL_MOD && !nowhere) ArmRequest(fd);  // before the kernel may report it
    return ControlListener(epfd, operation, fd, fd, socket, event, socket->GetReadiness());
  }
  switch (operation) {
    case EPOLL_CTL_ADD:
      return nowhere ? Fail(EFAULT) : Add(fd, socket, event);
    case EPOLL_CTL_MOD:
      return nowhere ? Fail(EFAULT) : Modify(fd, event);
    case EPOLL_CTL_DEL:
      return Delete(fd);
    default:
      return Fail(nowhere ? EFAULT : EINVAL);
  }
}

bool EpollSet::HasData(uint64_t data) {
  const auto has = [data](const auto& entry) {
    return entry != nullptr && entry->socket && entry->data.u64 == data;
  };
  std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), has) ||
         std::any_of(orphans_.begin(), orphans_.end(), has) ||
         std::any_of(requests_.begin(), requests_.end(),
                     [data](const Request& r) { return r.wanted.data.u64 == data; });
}

int EpollSet::Add(int fd, StreamSocket* socket, epoll_event* event) {
  constexpr uint32_t kWithExclusive =
      EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
  if ((event->events & EPOLLEXCLUSIVE) != 0 && (event->events & ~kWithExclusive) != 0) return Fail(EINVAL);
  {
    std::lock_guard lock(mutex_);
    Entry& entry = At(fd);
    if (entry.socket) return Fail(EEXIST);
    socket->Ref();
    entry.socket = SocketRef(socket);
    SetRequest(entry, *event);
    MakeCandidate(fd, entry);
    Kick();
  }
  if (socket->AddObserver(this, fd) == StreamSocket::State::kPlain) {
    // It fell back to TCP this moment, before it knew of us.
    OnPlain(fd);
  }
  return 0;
}

int EpollSet::Modify(int fd, epoll_event* event) {
  if ((event->events & EPOLLEXCLUSIVE) != 0) return Fail(EINVAL);
  std::lock_guard lock(mutex_);
  Entry* const entry = Find(fd);
  if (entry == nullptr) return Fail(ENOENT);
  if ((entry->events & EPOLLEXCLUSIVE) != 0) return Fail(EINVAL);
  SetRequest(*entry, *event);
  MakeCandidate(fd, *entry);
  Kick();
  return 0;
}

int EpollSet::Delete(int fd) {
  SocketRef socket;
  {
    std::lock_guard lock(mutex_);
    Entry* const entry = Find(fd);
    if (entry == nullptr) return Fail(ENOENT);
    socket = std::move(entry->socket);
  }
  static_cast<StreamSocket*>(socket.get())->RemoveObserver(this, fd);
  return 0;
}

void EpollSet::Forget(int fd) {
  SocketRef socket;
  Entry registration;
  {
    std::lock_guard lock(mutex_);
    const size_t index = static_cast<size_t>(fd);
    if (fd >= 0 && index < entries_.size() && entries_[index] != nullptr) {
      Entry& entry = *entries_[index];
      Unregister(entry);
      socket = std::move(entry.socket);
      registration.events = entry.events;
      registration.data = entry.data;
      registration.armed = entry.armed;
      registration.seen_read_edge = entry.seen_read_edge;
      registration.seen_write_edge = entry.seen_write_edge;
    }
  }
  if (socket) {
    auto* const stream = static_cast<StreamSocket*>(socket.get());
    stream->RemoveObserver(this, fd);
    const int duplicate = stream->OtherDescriptor(fd);
    if (duplicate >= 0) KeepForDuplicate(duplicate, std::move(socket), registration);
  }
  std::vector<std::pair<int, SocketRef>> orphans;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < orphans_.size(); ++i) {
      if (!orphans_[i]->socket) continue;
      orphans_[i]->socket->Ref();
      orphans.emplace_back(kFirstOrphan - static_cast<int>(i), SocketRef(orphans_[i]->socket.get()));
    }
  }
  for (const auto& [key, orphan] : orphans) {
    if (static_cast<StreamSocket*>(orphan.get())->OtherDescriptor(fd) < 0) Drop(key);
  }
  ForgetRequests(fd);
}

// The number is closed, the socket is not: the registration goes on, out of epoll_ctl's reach.
void EpollSet::KeepForDuplicate(int duplicate, SocketRef socket, const Entry& registration) {
  const int link = HiddenFds::Duplicate(duplicate);
  if (link < 0) return;
  auto* const stream = static_cast<StreamSocket*>(socket.get());
  int key;
  {
    std::lock_guard lock(mutex_);
    size_t i = 0;
    while (i < orphans_.size() && orphans_[i]->socket) ++i;
    if (i == orphans_.size()) orphans_.push_back(std::make_unique<Entry>());
    Entry& entry = *orphans_[i];
    key = kFirstOrphan - static_cast<int>(i);
    entry.events = registration.events;
    entry.data = registration.data;
    entry.armed = registration.armed;
    entry.seen_read_edge = registration.seen_read_edge;
    entry.seen_write_edge = registration.seen_write_edge;
    entry.socket = std::move(socket);
    entry.link = link;
    MakeCandidate(key, entry);
    Kick();
  }
  if (stream->AddObserver(this, key) == StreamSocket::State::kPlain) OnPlain(key);
}

void EpollSet::Drop(int key) {
  SocketRef socket;
  int link = -1;
  {
    std::lock_guard lock(mutex_);
    Entry* const entry = Find(key);
    if (entry == nullptr) return;
    Unregister(*entry);
    socket = std::move(entry->socket);
    link = std::exchange(entry->link, -1);
  }
  static_cast<StreamSocket*>(socket.get())->RemoveObserver(this, key);
  if (link >= 0) HiddenFds::Close(link);
}

}  // namespace sdp::preload
