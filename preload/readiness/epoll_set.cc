#include "preload/readiness/epoll_set.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "preload/fd_table.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

// Links that progress in one round: few, so that the application answers the first while the last still come in.
constexpr int kBatch = 8;
constexpr uint64_t kKickTag = ~uint64_t{0};
constexpr uint64_t kRequestTag = uint64_t{1} << 62;  // and the number of an SDP listener
constexpr int kFirstOrphan = -2;
constexpr uint64_t kUnseen = ~uint64_t{0};  // no edge count gets there

// poll and epoll number their events alike (EPOLLIN is POLLIN, and so on).
static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI && EPOLLERR == POLLERR && EPOLLHUP == POLLHUP &&
              EPOLLRDHUP == POLLRDHUP);

int Fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

bool EpollSet::Serves(int epfd) {
  if (inner_ < 0) return false;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = Cookie()}};
  const int saved = errno;
  const bool registered = real.epoll_ctl(epfd, EPOLL_CTL_MOD, inner_, &event) == 0;
  errno = saved;
  return registered;
}

void EpollSet::SetNumber(int epfd) {
  std::lock_guard lock(mutex_);
  epfd_ = epfd;
}

bool EpollSet::Open(int epfd) {
  epfd_ = epfd;
  const int inner = real.epoll_create1(EPOLL_CLOEXEC);
  const int kick = inner < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (inner >= 0 && HiddenFds::HideTracked(inner, &inner_) >= 0 && kick >= 0 && HiddenFds::HideTracked(kick, &kick_) >= 0) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kKickTag}};
    if (real.epoll_ctl(inner_, EPOLL_CTL_ADD, kick_, &event) == 0) {
      event = {.events = EPOLLIN, .data = {.u64 = Cookie()}};
      if (real.epoll_ctl(epfd, EPOLL_CTL_ADD, inner_, &event) == 0) return true;
    }
  }
  const int error = errno;
  Close();
  errno = error;
  return false;
}

void EpollSet::Close() {
  std::vector<std::pair<int, SocketRef>> sockets;
  std::vector<Request> requests;
  {
    std::lock_guard lock(mutex_);
    for (size_t fd = 0; fd < entries_.size(); ++fd) {
      if (entries_[fd] != nullptr && entries_[fd]->socket) sockets.emplace_back(fd, std::move(entries_[fd]->socket));
    }
    for (size_t i = 0; i < orphans_.size(); ++i) {
      if (orphans_[i]->link >= 0) HiddenFds::Close(orphans_[i]->link);
      if (orphans_[i]->socket) sockets.emplace_back(kFirstOrphan - static_cast<int>(i), std::move(orphans_[i]->socket));
    }
    entries_.clear();
    orphans_.clear();
    requests.swap(requests_);
    candidates_.clear();
    listener_data_.clear();
  }
  for (auto& [fd, socket] : sockets) static_cast<StreamSocket*>(socket.get())->RemoveObserver(this, fd);
  for (std::atomic<int>* fd : {&inner_, &kick_}) {
    const int number = fd->exchange(-1);
    if (number >= 0) HiddenFds::Close(number);
  }
}

void EpollSet::DisownAfterFork() {
  for (const auto& entry : entries_) {
    if (entry != nullptr) entry->registered = 0;
  }
  for (const auto& entry : orphans_) entry->registered = 0;
}

EpollSet::Entry* EpollSet::Find(int fd) {
  if (fd <= kFirstOrphan) {
    const size_t orphan = static_cast<size_t>(kFirstOrphan - fd);
    return orphan < orphans_.size() && orphans_[orphan]->socket ? orphans_[orphan].get() : nullptr;
  }
  const size_t index = static_cast<size_t>(fd);
  if (fd < 0 || index >= entries_.size() || entries_[index] == nullptr || !entries_[index]->socket) return nullptr;
  return entries_[index].get();
}

EpollSet::Entry& EpollSet::At(int fd) {
  if (fd <= kFirstOrphan) return *orphans_[static_cast<size_t>(kFirstOrphan - fd)];
  const size_t index = static_cast<size_t>(fd);
  if (index >= entries_.size()) entries_.resize(index + 1);
  if (entries_[index] == nullptr) entries_[index] = std::make_unique<Entry>();
  return *entries_[index];
}

void EpollSet::MakeCandidate(int fd, Entry& entry) {
  if (entry.candidate) return;
  entry.candidate = true;
  candidates_.push_back(fd);
}

// What the application asks for is looked at by the next wait, edge or not, as the kernel does.
void EpollSet::SetRequest(Entry& entry, const epoll_event& event) {
  entry.events = event.events;
  entry.data = event.data;
  entry.armed = true;
  entry.seen_read_edge = entry.seen_write_edge = kUnseen;
}

void EpollSet::Unregister(Entry& entry) {
  if (entry.registered == 0) return;
  entry.registered = 0;
  const int saved = errno;
  real.epoll_ctl(inner_, EPOLL_CTL_DEL, entry.link_fd, nullptr);
  errno = saved;
}

// --- epoll_ctl

int EpollSet::Control(int epfd, int operation, int fd, epoll_event* event) {
  const SocketRef ref = FdTable::Get(fd);
  if (!ref) return static_cast<int>(kPassThrough);
  auto* const socket = static_cast<StreamSocket*>(ref.get());
  if (socket->listening()) {
    const int result = ControlListener(epfd, operation, fd, event, socket->GetReadiness());
    if (result == 0) WatchRequests(operation, fd, socket, event, socket->GetReadiness().listener_fds[0]);
    return result;
  }
  switch (operation) {
    case EPOLL_CTL_ADD:
      return event == nullptr ? Fail(EFAULT) : Add(fd, socket, event);
    case EPOLL_CTL_MOD:
      return event == nullptr ? Fail(EFAULT) : Modify(fd, event);
    case EPOLL_CTL_DEL:
      return Delete(fd);
    default:
      return Fail(EINVAL);
  }
}

int EpollSet::Add(int fd, StreamSocket* socket, epoll_event* event) {
  constexpr uint32_t kWithExclusive = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
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
  std::lock_guard lock(mutex_);
  Entry* const entry = Find(fd);
  if (entry == nullptr) return Fail(ENOENT);
  if (((event->events | entry->events) & EPOLLEXCLUSIVE) != 0) return Fail(EINVAL);
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

// The conventional listener is the kernel's; beside it, with the same data, the queue of connections over SDP that hands were shaken
// with. The SDP listener itself only says that somebody knocks: see WatchRequests.
int EpollSet::ControlListener(int epfd, int operation, int fd, epoll_event* event, const StreamSocket::Readiness& readiness) {
  const int result = real.epoll_ctl(epfd, operation, fd, event);
  if (result != 0) return result;
  const int saved = errno;
  if (readiness.listener_fds[1] >= 0) real.epoll_ctl(epfd, operation, readiness.listener_fds[1], event);
  errno = saved;
  if (operation != EPOLL_CTL_DEL) {
    std::lock_guard lock(mutex_);
    const bool known = std::any_of(listener_data_.begin(), listener_data_.end(),
                                   [&](const epoll_data_t& data) { return data.u64 == event->data.u64; });
    if (!known) listener_data_.push_back(event->data);
  }
  return 0;
}

// --- Connection requests

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
  std::vector<std::pair<StreamSocket*, SocketRef>> sockets;
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

// --- ReadinessObserver

void EpollSet::OnChange(int fd) {
  std::lock_guard lock(mutex_);
  Entry* const entry = Find(fd);
  if (entry == nullptr) return;
  MakeCandidate(fd, *entry);
  Kick();
}

void EpollSet::OnWatch(int fd, int link_fd, short events) {
  std::lock_guard lock(mutex_);
  Entry* const entry = Find(fd);
  if (entry == nullptr || entry->registered == events) return;
  if (events == 0) {
    Unregister(*entry);
    return;
  }
  const int saved = errno;
  epoll_event event{.events = static_cast<uint32_t>(events), .data = {.u64 = static_cast<uint64_t>(fd)}};
  const int number = link_fd >= 0 ? link_fd : entry->link;
  real.epoll_ctl(inner_, entry->registered == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, number, &event);
  entry->link_fd = number;
  errno = saved;
  entry->registered = events;
}

// The kernel takes over, with what the application asked for.
void EpollSet::OnPlain(int fd) {
  SocketRef socket;  // dropped behind the lock
  std::lock_guard lock(mutex_);
  Entry* const entry = Find(fd);
  if (entry == nullptr) return;
  Unregister(*entry);
  const int saved = errno;
  epoll_event event{.events = entry->armed ? entry->events : EPOLLONESHOT, .data = entry->data};
  real.epoll_ctl(epfd_, EPOLL_CTL_ADD, NumberOf(fd, *entry), &event);
  errno = saved;
  socket = std::move(entry->socket);
  // The kernel keeps its registration as long as the duplicate that keeps ours.
  if (const int link = std::exchange(entry->link, -1); link >= 0) HiddenFds::Close(link);
}

// With the lock held: wakes whoever sleeps in the kernel for this set.
void EpollSet::Kick() {
  if (sleepers_.load() == 0) return;
  const uint64_t one = 1;
  const int saved = errno;
  (void)!real.write(kick_, &one, sizeof one);
  errno = saved;
}

// --- epoll_wait

// Lets the links that have something make progress. Their sockets become candidates.
void EpollSet::ProgressLinks() {
  epoll_event ready[kBatch];
  const int count = real.epoll_wait(inner_, ready, kBatch, 0);
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.u64 == kKickTag) {
      uint64_t kicks;
      (void)!real.read(kick_, &kicks, sizeof kicks);
      continue;
    }
    if ((ready[i].data.u64 >> 62) == 1) {
      TakeOnRequests(static_cast<int>(ready[i].data.u64 & ~kRequestTag));
      continue;
    }
    SocketRef socket;
    {
      const int fd = static_cast<int>(ready[i].data.u64);
      std::lock_guard lock(mutex_);
      Entry* const entry = Find(fd);
      if (entry == nullptr) {
        // Taken out by the application a while ago: now it is worth the call.
        if (fd >= 0 && static_cast<size_t>(fd) < entries_.size() && entries_[fd] != nullptr) Unregister(*entries_[fd]);
        continue;
      }
      MakeCandidate(fd, *entry);
      entry->socket->Ref();
      socket = SocketRef(entry->socket.get());
    }
    static_cast<StreamSocket*>(socket.get())->Progress();
  }
}

bool EpollSet::HasCandidates() {
  std::lock_guard lock(mutex_);
  return !candidates_.empty();
}

void EpollSet::TakeCandidates(std::vector<std::pair<int, SocketRef>>* out, bool keep) {
  std::lock_guard lock(mutex_);
  if (candidates_.empty()) return;
  out->reserve(candidates_.size());
  for (const int fd : candidates_) {
    Entry& entry = At(fd);
    if (!keep) entry.candidate = false;
    if (!entry.socket) continue;
    entry.socket->Ref();
    out->emplace_back(fd, SocketRef(entry.socket.get()));
  }
  if (!keep) candidates_.clear();
}

bool EpollSet::ProgressAndCheck() {
  ProgressLinks();
  std::vector<std::pair<int, SocketRef>> work;
  TakeCandidates(&work, /*keep=*/true);
  for (auto& [fd, socket] : work) {
    const StreamSocket::Readiness readiness = static_cast<StreamSocket*>(socket.get())->GetReadiness();
    std::lock_guard lock(mutex_);
    const Entry* const entry = Find(fd);
    if (entry != nullptr && Holding(*entry, readiness) != 0) return true;
  }
  return false;
}

// Reports candidates that have what the application waits for; the others are candidates no more.
int EpollSet::Report(epoll_event* events, int max_events) {
  std::vector<std::pair<int, SocketRef>> work;
  TakeCandidates(&work, /*keep=*/false);
  int reported = ReportRequests(events, max_events);
  size_t next = 0;
  for (; next < work.size() && reported < max_events; ++next) {
    auto& [fd, socket] = work[next];
    const StreamSocket::Readiness readiness = static_cast<StreamSocket*>(socket.get())->GetReadiness();
    if (readiness.state == StreamSocket::State::kListening) {
      OnListen(fd, readiness);
      continue;
    }
    if (readiness.state == StreamSocket::State::kClosed && fd <= kFirstOrphan) {
      Drop(fd);  // both numbers were closed at once
      continue;
    }
    std::lock_guard lock(mutex_);
    if (ReportOne(fd, readiness, &events[reported])) ++reported;
  }
  if (next < work.size()) {
    // No room for these: they come first the next time, ahead of those that have had their turn.
    std::lock_guard lock(mutex_);
    std::vector<int> first;
    for (; next < work.size(); ++next) {
      Entry* const entry = Find(work[next].first);
      if (entry == nullptr || entry->candidate) continue;
      entry->candidate = true;
      first.push_back(work[next].first);
    }
    candidates_.insert(candidates_.begin(), first.begin(), first.end());
  }
  return reported;
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

uint32_t EpollSet::Holding(const Entry& entry, const StreamSocket::Readiness& readiness) {
  if (!entry.armed) return 0;
  uint32_t ready = static_cast<uint32_t>(readiness.events);
  if (readiness.state == StreamSocket::State::kNew && ready == 0) ready = EPOLLOUT | EPOLLHUP;  // as the kernel says
  ready &= entry.events | EPOLLERR | EPOLLHUP;
  if ((entry.events & EPOLLET) != 0) {
    // All that holds is reported whenever a wanted side has an edge of its own.
    constexpr uint32_t kReadSide = EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLPRI | EPOLLHUP | EPOLLERR;
    constexpr uint32_t kWriteSide = EPOLLOUT | EPOLLWRNORM | EPOLLHUP | EPOLLERR;
    uint32_t edges = 0;
    if (entry.seen_read_edge != readiness.read_edge) edges |= kReadSide;
    if (entry.seen_write_edge != readiness.write_edge) edges |= kWriteSide;
    if ((ready & edges) == 0) return 0;
  }
  return ready;
}

bool EpollSet::ReportOne(int fd, const StreamSocket::Readiness& readiness, epoll_event* out) {
  Entry* const found = Find(fd);
  if (found == nullptr) return false;
  Entry& entry = *found;
  const uint32_t ready = Holding(entry, readiness);
  entry.seen_read_edge = readiness.read_edge;
  entry.seen_write_edge = readiness.write_edge;
  if (ready == 0) return false;
  out->events = ready;
  out->data = entry.data;
  if ((entry.events & EPOLLONESHOT) != 0) {
    entry.armed = false;
  } else if ((entry.events & EPOLLET) == 0) {
    MakeCandidate(fd, entry);  // level: looked at again by the next wait
  }
  return true;
}

int EpollSet::Wait(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask) {
  for (;;) {
    // Where our sockets alone fill the caller's array, the kernel's descriptors have the first turn of the next wait.
    const bool kernel_first = kernel_turn_.exchange(false, std::memory_order_relaxed);
    int count = kernel_first ? 0 : Report(events, max_events);
    if (count == max_events) {
      kernel_turn_.store(true, std::memory_order_relaxed);
      return count;
    }
    const bool sleeps = count == 0;
    timespec storage{};
    const timespec* timeout = &storage;
    if (sleeps) {
      sleepers_.fetch_add(1);
      // A change after Report and before the sleep was not kicked for: look once more, now as a sleeper.
      timeout = HasCandidates() ? &storage : Remaining(deadline, &storage);
    }
    const int kernel = real.epoll_pwait2(epfd, events + count, max_events - count, timeout, mask);
    const int error = errno;
    if (sleeps) sleepers_.fetch_sub(1);
    if (kernel < 0) {
      if (count > 0) return count;
      return Fail(error);
    }
    bool inner = false;
    const int end = count + kernel;
    int kept = count;
    for (int i = count; i < end; ++i) {
      if (events[i].data.u64 == Cookie()) {
        inner = true;
        continue;
      }
      events[kept++] = events[i];
    }
    if (!listener_data_.empty() && kept - count > 1) kept = MergeListeners(events, count, kept);
    count = kept;
    if (inner) ProgressLinks();
    if ((inner || kernel_first) && count < max_events) count += Report(events + count, max_events - count);
    if (count > 0) return count;
    if (Now() >= deadline) return 0;
  }
}

// A listener is up to three descriptors with one registration: one event of it is enough.
int EpollSet::MergeListeners(epoll_event* events, int first, int end) {
  std::lock_guard lock(mutex_);
  int kept = first;
  for (int i = first; i < end; ++i) {
    const bool listener = std::any_of(listener_data_.begin(), listener_data_.end(),
                                      [&](const epoll_data_t& data) { return data.u64 == events[i].data.u64; });
    bool twin = false;
    for (int j = first; listener && j < kept && !twin; ++j) twin = events[j].data.u64 == events[i].data.u64;
    if (!twin) events[kept++] = events[i];
  }
  return kept;
}

}  // namespace sdp::preload
