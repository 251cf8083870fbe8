#include "preload/readiness/epoll_set.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "preload/link_calls.h"
#include "preload/readiness/epoll_set_look.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/real_calls.h"
#include "preload/socket/background.h"
#include "preload/socket/clock.h"
#include "preload/spare_descriptors.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// Links that progress in one round: few, so that the application answers the first while the last still come
// in.
constexpr int kBatch = 8;
constexpr uint64_t kUnseen = ~uint64_t{0};  // no edge count gets there

// How often a wait looks at connections that other processes hold, too.
constexpr Duration kSharedLook = std::chrono::milliseconds(32);

// poll and epoll number their events alike (EPOLLIN is POLLIN, and so on).
static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI && EPOLLERR == POLLERR &&
              EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP);

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
  return TryToOpen(epfd) || (errno == EMFILE && SpareDescriptors::GiveUp() && TryToOpen(epfd));
}

bool EpollSet::TryToOpen(int epfd) {
  epfd_ = epfd;
  group_ = EpollNumbers::GroupOf(epfd);
  nested_ = false;
  const int inner = real.epoll_create1(EPOLL_CLOEXEC);
  const int kick = inner < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (inner >= 0 && HiddenFds::HideTracked(inner, &inner_) >= 0 && kick >= 0 &&
      HiddenFds::HideTracked(kick, &kick_) >= 0) {
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
      if (entries_[fd] != nullptr && entries_[fd]->socket)
        sockets.emplace_back(fd, std::move(entries_[fd]->socket));
    }
    for (auto& entry : entries_) {
      if (entry != nullptr && entry->twin >= 0) Unregister(*entry);
    }
    for (size_t i = 0; i < orphans_.size(); ++i) {
      if (orphans_[i]->twin >= 0) Unregister(*orphans_[i]);
      if (orphans_[i]->link >= 0) HiddenFds::Close(orphans_[i]->link);
      if (orphans_[i]->socket)
        sockets.emplace_back(kFirstOrphan - static_cast<int>(i), std::move(orphans_[i]->socket));
    }
    devices_.clear();
    device_count_ = 0;
    entries_.clear();
    orphans_.clear();
    requests.swap(requests_);
    candidates_.clear();
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
  while (!devices_.empty()) ForgetDevice(At(devices_.back()));
}

EpollSet::Entry* EpollSet::Find(int fd) {
  if (fd <= kFirstOrphan) {
    const size_t orphan = static_cast<size_t>(kFirstOrphan - fd);
    return orphan < orphans_.size() && orphans_[orphan]->socket ? orphans_[orphan].get() : nullptr;
  }
  const size_t index = static_cast<size_t>(fd);
  if (fd < 0 || index >= entries_.size() || entries_[index] == nullptr || !entries_[index]->socket)
    return nullptr;
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
  ForgetDevice(entry);
  const int saved = errno;
  real.epoll_ctl(inner_, EPOLL_CTL_DEL, entry.link_fd, nullptr);
  if (const int twin = std::exchange(entry.twin, -1); twin >= 0) HiddenFds::Close(twin);
  errno = saved;
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
  int number = entry->twin >= 0 ? entry->twin : link_fd >= 0 ? link_fd : entry->link;
  const int operation = entry->registered == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (real.epoll_ctl(inner_, operation, number, &event) != 0 && errno == EEXIST &&
      operation == EPOLL_CTL_ADD) {
    entry->twin = HiddenFds::Duplicate(number);
    if (entry->twin >= 0) number = entry->twin;
    real.epoll_ctl(inner_, EPOLL_CTL_ADD, number, &event);
  }
  entry->link_fd = number;
  NoteDevice(fd, *entry, link_fd);
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

// --- epoll_wait

// Lets the links that have something make progress. Their sockets become candidates. Whether there is a kick;
// it is taken in only on demand.
bool EpollSet::ProgressLinks(bool take_kick) {
  bool kicked = false;
  epoll_event ready[kBatch];
  constexpr timespec kAtOnce{};
  const int count = Confined() ? WaitForEpoll(inner_, ready, kBatch, &kAtOnce, nullptr)
                               : real.epoll_wait(inner_, ready, kBatch, 0);
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.u64 == kKickTag) {
      kicked = true;
      if (take_kick) TakeKick();
      continue;
    }
    if ((ready[i].data.u64 >> 62) == 1) {
      const int sdp_fd = static_cast<int>(ready[i].data.u64 & ~kRequestTag);
      (ready[i].events & EPOLLHUP) != 0 ? DropRequests(sdp_fd) : TakeOnRequests(sdp_fd);
      continue;
    }
    SocketRef socket;
    {
      const int fd = static_cast<int>(ready[i].data.u64);
      std::lock_guard lock(mutex_);
      Entry* const entry = Find(fd);
      if (entry == nullptr) {
        // Taken out by the application a while ago: now it is worth the call.
        if (fd >= 0 && static_cast<size_t>(fd) < entries_.size() && entries_[fd] != nullptr)
          Unregister(*entries_[fd]);
        continue;
      }
      MakeCandidate(fd, *entry);
      entry->socket->Ref();
      socket = SocketRef(entry->socket.get());
    }
    static_cast<StreamSocket*>(socket.get())->Progress();
  }
  return kicked;
}

bool EpollSet::HasCandidates() {
  std::lock_guard lock(mutex_);
  return !candidates_.empty();
}

void EpollSet::TakeCandidates(Work* out, bool keep) {
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

Time EpollSet::LookAtShared() {
  if (!HasShared()) return kNever;
  const Time now = Now();
  std::lock_guard lock(mutex_);
  if (now < next_look_) return next_look_;
  next_look_ = now + kSharedLook;
  int count = 0;
  for (auto* entries : {&entries_, &orphans_}) {
    for (size_t i = 0; i < entries->size(); ++i) {
      Entry* const entry = (*entries)[i].get();
      if (entry == nullptr || !entry->shared) continue;
      if (!entry->socket) {
        entry->shared = false;
        continue;
      }
      ++count;
      MakeCandidate(entries == &entries_ ? static_cast<int>(i) : kFirstOrphan - static_cast<int>(i), *entry);
    }
  }
  shared_entries_ = count;
  return count == 0 ? kNever : next_look_;
}

// With the lock held.
void EpollSet::NoteShared(int fd, bool shared) {
  Entry* const entry = Find(fd);
  if (entry == nullptr || entry->shared == shared) return;
  entry->shared = shared;
  shared_entries_.fetch_add(shared ? 1 : -1);
}

// Reports candidates that have what the application waits for, behind the `count` events that are there
// already; the others are candidates no more. The new count.
int EpollSet::Report(epoll_event* events, int count, int max_events, Reported* reported) {
  Work work;
  TakeCandidates(&work, /*keep=*/false);
  const size_t earlier = reported->size();
  std::sort(reported->begin(), reported->end());
  count += ReportRequests(events + count, max_events - count);
  size_t next = 0;
  for (; next < work.size() && count < max_events && MayWrite(&events[count], sizeof *events); ++next) {
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
    NoteShared(fd, readiness.shared);
    if (!ReportOne(fd, readiness, &events[count])) continue;
    const auto end = reported->begin() + earlier;
    const auto before = std::lower_bound(reported->begin(), end, std::pair(fd, 0));
    if (before != end && before->first == fd) {
      events[before->second].events |= events[count].events;
    } else {
      reported->emplace_back(fd, count++);
    }
  }
  if (next < work.size()) {
    // No room for these: they come first the next time, ahead of those that have had their turn.
    std::lock_guard lock(mutex_);
    absl::InlinedVector<int, 64> first;
    for (; next < work.size(); ++next) {
      Entry* const entry = Find(work[next].first);
      if (entry == nullptr || entry->candidate) continue;
      entry->candidate = true;
      first.push_back(work[next].first);
    }
    candidates_.insert(candidates_.begin(), first.begin(), first.end());
  }
  return count;
}

uint32_t EpollSet::Holding(const Entry& entry, const StreamSocket::Readiness& readiness) {
  if (!entry.armed) return 0;
  uint32_t ready = static_cast<uint32_t>(readiness.events);
  if (readiness.state == StreamSocket::State::kNew && ready == 0)
    ready = EPOLLOUT | EPOLLWRNORM | EPOLLHUP;  // as the kernel says
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
  // A cancellation ends it before it has taken an event, or in its sleep.
  pthread_testcancel();
  const CancelledInSleepsOnly whole;
  if (!MayWrite(events, sizeof *events))
    return Fail(EFAULT);  // of the others it is found out one by one, as the kernel does
  Reported reported;
  // However it ends.
  struct Outer {
    EpollSet* set;
    ~Outer() { set->KickOthers(); }
  } const outer{this};
  for (;;) {
    const Time undone = Background::RunInline();
    // Where our sockets alone fill the caller's array, the kernel's descriptors have the first turn of the
    // next wait.
    const bool kernel_first = kernel_turn_.exchange(false, std::memory_order_relaxed);
    int count = kernel_first ? 0 : Report(events, 0, max_events, &reported);
    SleepingDevices devices;
    if (count == 0 && !kernel_first && device_count_.load(std::memory_order_relaxed) != 0 &&
        Now() < deadline) {
      FindDevices(&devices);
      pollfd other{.fd = epfd, .events = POLLIN, .revents = 0};
      if (devices.look.any()) {
        const DeviceLook::Outcome outcome = devices.Look(*this, deadline, real.poll(&other, 1, 0) > 0, mask);
        if (outcome != DeviceLook::Outcome::kSleep) count = Report(events, 0, max_events, &reported);
        if (outcome == DeviceLook::Outcome::kInterrupted && count == 0) return Fail(EINTR);
      }
    }
    if (count == max_events) {
      kernel_turn_.store(true, std::memory_order_relaxed);
      return count;
    }
    const bool sleeps = count == 0;
    timespec storage{};
    const timespec* timeout = &storage;
    if (sleeps) {
      sleepers_.fetch_add(1);
      const Time look = LookAtShared();
      // A change after Report and before the sleep was not kicked for: look once more, now as a sleeper.
      timeout = HasCandidates() ? &storage : Remaining(std::min({deadline, undone, look}), &storage);
    }
    if (sleeps) devices.FallAsleep(deadline);
    int kernel;
    if (sleeps) {
      struct Counted {
        std::atomic<int>& sleepers;
        ~Counted() { sleepers.fetch_sub(1); }
      } const counted{sleepers_};
      const SleepMayBeCancelled here;
      kernel = WaitForEpoll(epfd, events, max_events, timeout, mask);
    } else {
      kernel = WaitForEpoll(epfd, events + count, max_events - count, timeout, mask);
    }
    const int error = errno;
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
    count = MergeListeners(events, count, kept);
    if (inner) ProgressLinks(/*take_kick=*/true);
    if ((inner || kernel_first) && count < max_events) count = Report(events, count, max_events, &reported);
    devices.WakeUp();
    if (count > 0) return count;
    if (Now() >= deadline) return 0;
  }
}

}  // namespace sdp::preload
