#include "preload/readiness/listener_registrations.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "preload/fail.h"
#include "preload/real_calls.h"
#include "preload/socket/watch.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// A listener is readable in two words, a queue in only one of them, EPOLLIN. A queue is also writable, which
// a listener never is.
constexpr uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr uint32_t kNoQueues = EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;

uint32_t WatchOf(uint32_t wanted) {
  return ((wanted & kReadable) != 0 ? wanted | EPOLLIN : wanted) & ~kNoQueues;
}

}  // namespace

int ListenerRegistrations::Control(int epfd, int operation, int number, int fd, StreamSocket* socket,
                                   epoll_event* event, const Watch::Readiness& readiness) {
  int result;
  if (operation == EPOLL_CTL_DEL || !MayRead(event, sizeof *event)) {
    result = real.epoll_ctl(epfd, operation, number, event);
    const KeepErrno keep;
    for (const int queue : {readiness.listener_fds[1], readiness.listener_fds[2]}) {
      if (result == 0 && queue >= 0) real.epoll_ctl(epfd, operation, queue, event);
    }
  } else {
    result = ControlTagged(epfd, operation, number, *event, readiness);
  }
  if (result != 0) return result;
  WatchRequests(operation, number, fd, socket, event, readiness.listener_fds[0]);
  return 0;
}

int ListenerRegistrations::ControlTagged(int epfd, int operation, int number, const epoll_event& event,
                                         const Watch::Readiness& readiness) {
  epoll_event tagged{.events = event.events, .data = {}};
  Tag before;
  {
    // Store the tag before the kernel may report it.
    std::lock_guard lock(mutex_);
    Tag& tag = TagOf(number);
    before = tag;
    tag.data = event.data;
    tag.events = event.events;
    tagged.data.ptr = &tag;
  }
  const int result = real.epoll_ctl(epfd, operation, number, &tagged);
  const KeepErrno keep;
  if (result != 0) {
    std::lock_guard lock(mutex_);
    TagOf(number) = before;
  } else {
    tagged.events = WatchOf(event.events);
    for (const int queue : {readiness.listener_fds[1], readiness.listener_fds[2]}) {
      if (queue >= 0) real.epoll_ctl(epfd, operation, queue, &tagged);
    }
  }
  return result;
}

ListenerRegistrations::Tag& ListenerRegistrations::TagOf(int number) {
  for (const auto& tag : tags_) {
    if (tag->number == number) return *tag;
  }
  auto tag = std::make_unique<Tag>(Tag{.number = number, .data = {}});
  const auto at = std::lower_bound(tags_.begin(), tags_.end(), tag);
  has_tags_ = true;
  return **tags_.insert(at, std::move(tag));
}

ListenerRegistrations::Tag* ListenerRegistrations::TagIn(const epoll_event& event) const {
  const auto at = std::lower_bound(
      tags_.begin(), tags_.end(), event.data.u64,
      [](const auto& tag, uint64_t data) { return reinterpret_cast<uint64_t>(tag.get()) < data; });
  return at != tags_.end() && reinterpret_cast<uint64_t>(at->get()) == event.data.u64 ? at->get() : nullptr;
}

ListenerRegistrations::Request* ListenerRegistrations::Find(int fd, const StreamSocket* socket) {
  const auto at = std::find_if(requests_.begin(), requests_.end(),
                               [&](const Request& r) { return r.fd == fd && r.socket.get() == socket; });
  return at != requests_.end() ? &*at : nullptr;
}

void ListenerRegistrations::Unwatch(int sdp_fd) {
  const KeepErrno keep;
  real.epoll_ctl(inner_, EPOLL_CTL_DEL, sdp_fd, nullptr);
}

void ListenerRegistrations::WatchRequests(int operation, int number, int fd, StreamSocket* socket,
                                          const epoll_event* event, int sdp_fd) {
  SocketRef gone;  // dropped after the lock
  std::lock_guard lock(mutex_);
  Request* request = Find(fd, socket);
  if (operation == EPOLL_CTL_DEL) {
    if (request != nullptr) {
      gone = std::move(request->socket);
      requests_.erase(requests_.begin() + (request - requests_.data()));
    }
    const bool shared =
        std::any_of(requests_.begin(), requests_.end(), [&](const Request& r) { return r.sdp_fd == sdp_fd; });
    if (!shared && sdp_fd >= 0) Unwatch(sdp_fd);
    return;
  }
  if (request == nullptr) {
    request = &requests_.emplace_back(Request{.socket = SocketRef::To(socket),
                                              .tag = &TagOf(number),
                                              .fd = fd,
                                              .sdp_fd = sdp_fd,
                                              .wanted = {},
                                              .armed = true,
                                              .refused = false});
    if (fd < 0) request->tag->number = -1;
  }
  request->wanted = *event;
  request->armed = true;
  request->refused = false;
  const KeepErrno keep;
  const uint32_t look = WatchOf(event->events) & (EPOLLIN | EPOLLET);
  epoll_event inner{.events = (look & EPOLLIN) != 0 ? look : 0, .data = {.u64 = MarkOf(sdp_fd)}};
  if (sdp_fd >= 0 && real.epoll_ctl(inner_, EPOLL_CTL_ADD, sdp_fd, &inner) != 0)
    real.epoll_ctl(inner_, EPOLL_CTL_MOD, sdp_fd, &inner);
}

void ListenerRegistrations::Forget(int fd) {
  absl::InlinedVector<std::pair<StreamSocket*, SocketRef>, 8> sockets;
  {
    std::lock_guard lock(mutex_);
    for (Request& request : requests_) {
      sockets.emplace_back(&Stream(request.socket), SocketRef::To(request.socket.get()));
    }
  }
  for (const auto& [stream, ref] : sockets) {
    const bool last = stream->OtherDescriptor(fd) < 0;
    std::lock_guard lock(mutex_);
    for (size_t i = requests_.size(); i-- > 0;) {
      Request& request = requests_[i];
      if (request.socket.get() != stream) continue;
      if (last) {
        if (!disowned_) Unwatch(request.sdp_fd);
        requests_.erase(requests_.begin() + static_cast<ptrdiff_t>(i));
      } else if (request.fd == fd) {
        request.fd = -1;
        request.tag->number = -1;  // the number's next user gets another tag
      }
    }
  }
}

// If the handshake is possible, the listener's queue reports the connection; otherwise accept has to return
// the error.
void ListenerRegistrations::TakeOn(int sdp_fd) {
  SocketRef socket;
  {
    std::lock_guard lock(mutex_);
    for (Request& request : requests_) {
      if (request.sdp_fd != sdp_fd || socket) continue;
      socket = SocketRef::To(request.socket.get());
    }
  }
  if (!socket || Watch(Stream(socket)).TakeOnConnections() || !Stream(socket).listening()) return;
  std::lock_guard lock(mutex_);
  for (Request& request : requests_) request.refused |= request.sdp_fd == sdp_fd;
}

// The conventional listener's own registration reports the shutdown.
void ListenerRegistrations::Drop(int sdp_fd) {
  absl::InlinedVector<SocketRef, 8> sockets;  // dropped after the lock
  {
    std::lock_guard lock(mutex_);
    Unwatch(sdp_fd);
    for (Request& request : requests_) {
      if (request.sdp_fd == sdp_fd) sockets.push_back(std::move(request.socket));
    }
    std::erase_if(requests_, [](const Request& request) { return !request.socket; });
  }
  for (const SocketRef& socket : sockets)
    (void)Watch(Stream(socket)).TakeOnConnections();  // lets the socket learn of it, too
}

int ListenerRegistrations::Report(epoll_event* events, int max_events) {
  int count = 0;
  for (Request& request : requests_) {
    if (!request.refused) continue;
    const bool wanted = request.armed && (request.wanted.events & kReadable) != 0;
    if (wanted && (count == max_events || !MayWrite(&events[count], sizeof *events))) break;
    request.refused = false;
    if (!wanted) continue;
    if ((request.wanted.events & EPOLLONESHOT) != 0) request.armed = false;
    events[count++] = {.events = request.wanted.events & kReadable, .data = request.wanted.data};
  }
  return count;
}

bool ListenerRegistrations::HasData(uint64_t data) const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [data](const Request& r) { return r.wanted.data.u64 == data; });
}

// Tags stay: see Tag.
void ListenerRegistrations::Clear() {
  std::vector<Request> gone;  // dropped after the lock
  std::lock_guard lock(mutex_);
  gone.swap(requests_);
  disowned_ = false;
}

// Each of a listener's descriptors fires once; together they may fire only once.
bool ListenerRegistrations::TakeShot(const Tag* tag) {
  const auto found =
      std::find_if(requests_.begin(), requests_.end(), [&](const Request& r) { return r.tag == tag; });
  if (found == requests_.end() || (found->wanted.events & EPOLLONESHOT) == 0) return true;
  return std::exchange(found->armed, false);
}

void ListenerRegistrations::Arm(int fd) {
  std::lock_guard lock(mutex_);
  for (Request& request : requests_) {
    if (request.fd == fd) request.armed = true;
  }
}

// A listener has up to four descriptors with one registration, for which one event is enough.
int ListenerRegistrations::Merge(epoll_event* events, int first, int end) {
  if (first == end || !has_tags_.load()) return end;
  std::lock_guard lock(mutex_);
  absl::InlinedVector<std::pair<Tag*, int>, 16> seen;  // with the place of its event
  int kept = first;
  for (int i = first; i < end; ++i) {
    Tag* const tag = TagIn(events[i]);
    if (tag == nullptr) {
      events[kept++] = events[i];
      continue;
    }
    if ((events[i].events & kReadable) != 0)
      events[i].events = (events[i].events & ~kReadable) | (tag->events & kReadable);
    const auto twin = std::find_if(seen.begin(), seen.end(), [&](const auto& s) { return s.first == tag; });
    if (twin != seen.end()) {
      events[twin->second].events |= events[i].events;
    } else if (TakeShot(tag)) {
      seen.emplace_back(tag, kept);
      events[kept++] = {.events = events[i].events, .data = tag->data};
    }
  }
  return kept;
}

}  // namespace sdp::preload
