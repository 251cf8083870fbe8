// Listeners in an epoll set: the conventional one, the queue of connections over SDP, and who knocks at the SDP listener.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "preload/readiness/epoll_set.h"
#include "preload/real_calls.h"

namespace sdp::preload {

// The conventional listener is the kernel's; beside it, with the same data, the queues of connections over SDP that hands were shaken
// with: this process's, and the one that it may share with others. The SDP listener itself only says that somebody knocks: see WatchRequests.
int EpollSet::ControlListener(int epfd, int operation, int fd, epoll_event* event, const StreamSocket::Readiness& readiness) {
  const int result = real.epoll_ctl(epfd, operation, fd, event);
  if (result != 0) return result;
  const int saved = errno;
  for (const int queue : {readiness.listener_fds[1], readiness.listener_fds[2]}) {
    if (queue >= 0) real.epoll_ctl(epfd, operation, queue, event);
  }
  errno = saved;
  if (operation != EPOLL_CTL_DEL) {
    std::lock_guard lock(mutex_);
    const bool known = std::any_of(listener_data_.begin(), listener_data_.end(),
                                   [&](const epoll_data_t& data) { return data.u64 == event->data.u64; });
    if (!known) listener_data_.push_back(event->data);
  }
  return 0;
}

void EpollSet::WatchRequests(int operation, int fd, StreamSocket* socket, const epoll_event* event, int sdp_fd) {
  if (sdp_fd < 0) return;
  SocketRef gone;
  std::lock_guard lock(mutex_);
  auto at = std::find_if(requests_.begin(), requests_.end(), [&](const Request& r) { return r.fd == fd && r.socket.get() == socket; });
  const int saved = errno;
  if (operation == EPOLL_CTL_DEL) {
    if (at != requests_.end()) {
      gone = std::move(at->socket);
      requests_.erase(at);
    }
    const bool shared = std::any_of(requests_.begin(), requests_.end(), [&](const Request& r) { return r.sdp_fd == sdp_fd; });
    if (!shared) real.epoll_ctl(inner_, EPOLL_CTL_DEL, sdp_fd, nullptr);
  } else {
    if (at == requests_.end()) {
      socket->Ref();
      requests_.push_back({.socket = SocketRef(socket), .fd = fd, .sdp_fd = sdp_fd, .wanted = {}, .armed = true, .refused = false});
      at = requests_.end() - 1;
    }
    at->wanted = *event;
    at->armed = true;
    at->refused = false;
    const uint32_t look = event->events & (EPOLLIN | EPOLLET);
    epoll_event inner{.events = (look & EPOLLIN) != 0 ? look : 0, .data = {.u64 = kRequestTag | static_cast<uint64_t>(sdp_fd)}};
    if (real.epoll_ctl(inner_, EPOLL_CTL_ADD, sdp_fd, &inner) != 0) real.epoll_ctl(inner_, EPOLL_CTL_MOD, sdp_fd, &inner);
  }
  errno = saved;
}

void EpollSet::ForgetRequests(int fd) {
  absl::InlinedVector<std::pair<StreamSocket*, SocketRef>, 8> sockets;
  {
    std::lock_guard lock(mutex_);
    for (Request& request : requests_) {
      request.socket->Ref();
      sockets.emplace_back(static_cast<StreamSocket*>(request.socket.get()), SocketRef(request.socket.get()));
    }
  }
  for (const auto& [stream, ref] : sockets) {
    const bool last = stream->OtherDescriptor(fd) < 0;
    std::lock_guard lock(mutex_);
    for (size_t i = requests_.size(); i-- > 0;) {
      Request& request = requests_[i];
      if (request.socket.get() != stream) continue;
      if (last) {
        const int saved = errno;
        real.epoll_ctl(inner_, EPOLL_CTL_DEL, request.sdp_fd, nullptr);
        errno = saved;
        requests_.erase(requests_.begin() + static_cast<ptrdiff_t>(i));
      } else if (request.fd == fd) {
        request.fd = -1;
      }
    }
  }
}

// Somebody knocks. If hands can be shaken, the listener's queue will tell; else accept has to say what is wrong.
void EpollSet::TakeOnRequests(int sdp_fd) {
  SocketRef socket;
  {
    std::lock_guard lock(mutex_);
    for (Request& request : requests_) {
      if (request.sdp_fd != sdp_fd || socket) continue;
      request.socket->Ref();
      socket = SocketRef(request.socket.get());
    }
  }
  if (!socket || static_cast<StreamSocket*>(socket.get())->TakeOnConnections()) return;
  std::lock_guard lock(mutex_);
  for (Request& request : requests_) request.refused |= request.sdp_fd == sdp_fd;
}

int EpollSet::ReportRequests(epoll_event* events, int max_events) {
  std::lock_guard lock(mutex_);
  int count = 0;
  for (Request& request : requests_) {
    if (!std::exchange(request.refused, false) || !request.armed || (request.wanted.events & EPOLLIN) == 0) continue;
    if (count == max_events) break;
    if ((request.wanted.events & EPOLLONESHOT) != 0) request.armed = false;
    events[count++] = {.events = EPOLLIN, .data = request.wanted.data};
  }
  return count;
}

// A socket registered before it began to listen: from here on the kernel answers for it, as for any listener.
void EpollSet::OnListen(int fd, const StreamSocket::Readiness& readiness) {
  epoll_event event{};
  int epfd;
  int number;
  SocketRef socket;
  {
    std::lock_guard lock(mutex_);
    const Entry* const entry = Find(fd);
    if (entry == nullptr) return;
    event = {.events = entry->armed ? entry->events : EPOLLONESHOT, .data = entry->data};
    epfd = epfd_;
    number = NumberOf(fd, *entry);
    entry->socket->Ref();
    socket = SocketRef(entry->socket.get());
  }
  const int saved = errno;
  if (ControlListener(epfd, EPOLL_CTL_ADD, number, &event, readiness) == 0) {
    WatchRequests(EPOLL_CTL_ADD, std::max(fd, -1), static_cast<StreamSocket*>(socket.get()), &event, readiness.listener_fds[0]);
  }
  errno = saved;
  Drop(fd);
}

// Each of a listener's descriptors fires once; together they may only once. (Of registrations with the same data nobody knows which is meant.)
bool EpollSet::TakeShot(const epoll_event& event) {
  Request* found = nullptr;
  for (Request& request : requests_) {
    if (request.wanted.data.u64 != event.data.u64) continue;
    if (found != nullptr) return true;
    found = &request;
  }
  if (found == nullptr || (found->wanted.events & EPOLLONESHOT) == 0) return true;
  return std::exchange(found->armed, false);
}

void EpollSet::ArmRequest(int fd) {
  std::lock_guard lock(mutex_);
  for (Request& request : requests_) {
    if (request.fd == fd) request.armed = true;
  }
}

// A listener is up to four descriptors with one registration: one event of it is enough.
int EpollSet::MergeListeners(epoll_event* events, int first, int end) {
  std::lock_guard lock(mutex_);
  int kept = first;
  for (int i = first; i < end; ++i) {
    const bool listener = std::any_of(listener_data_.begin(), listener_data_.end(),
                                      [&](const epoll_data_t& data) { return data.u64 == events[i].data.u64; });
    bool twin = false;
    for (int j = first; listener && j < kept && !twin; ++j) twin = events[j].data.u64 == events[i].data.u64;
    if (!twin && (!listener || TakeShot(events[i]))) events[kept++] = events[i];
  }
  return kept;
}

}  // namespace sdp::preload
