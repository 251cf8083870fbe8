#include "preload/readiness/registrations.h"

#include <poll.h>

#include <algorithm>
#include <new>

#include "preload/fail.h"
#include "preload/hidden_fds.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// How often a wait looks at connections that other processes also hold.
constexpr Duration kSharedLook = std::chrono::milliseconds(32);

// poll and epoll use the same numbers for their events (EPOLLIN is POLLIN, and so on).
static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLPRI == POLLPRI && EPOLLERR == POLLERR &&
              EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP);

}  // namespace

Registrations::Job Registrations::JobOf(int key, const Entry& entry) {
  return {.key = key, .socket = SocketRef::To(entry.socket.get()), .version = entry.version};
}

uint32_t Registrations::Asked::Holding(const StreamSocket::Watch::Readiness& readiness) const {
  if (!armed) return 0;
  uint32_t ready = static_cast<uint32_t>(readiness.events);
  if (readiness.state == StreamSocket::State::kNew && ready == 0)
    ready = EPOLLOUT | EPOLLWRNORM | EPOLLHUP;  // as the kernel reports
  ready &= events | EPOLLERR | EPOLLHUP;
  if ((events & EPOLLET) == 0) return ready;
  // All events that hold are reported whenever a wanted side has an edge of its own.
  constexpr uint32_t kReadSide = EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLPRI | EPOLLHUP | EPOLLERR;
  constexpr uint32_t kWriteSide = EPOLLOUT | EPOLLWRNORM | EPOLLHUP | EPOLLERR;
  uint32_t edges = 0;
  if (seen_read_edge != readiness.read_edge) edges |= kReadSide;
  if (seen_write_edge != readiness.write_edge) edges |= kWriteSide;
  return (ready & edges) != 0 ? ready : 0;
}

template <typename F>
void Registrations::ForEach(F f) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i] != nullptr) f(static_cast<int>(i), *entries_[i]);
  }
  for (size_t i = 0; i < orphans_.size(); ++i) f(kFirstOrphan - static_cast<int>(i), *orphans_[i]);
}

Registrations::Entry* Registrations::Find(int key) {
  if (key <= kFirstOrphan) {
    const size_t orphan = static_cast<size_t>(kFirstOrphan - key);
    return orphan < orphans_.size() && orphans_[orphan]->socket ? orphans_[orphan].get() : nullptr;
  }
  const size_t index = static_cast<size_t>(key);
  if (key < 0 || index >= entries_.size() || entries_[index] == nullptr || !entries_[index]->socket)
    return nullptr;
  return entries_[index].get();
}

Registrations::Entry& Registrations::At(int key) {
  if (key <= kFirstOrphan) return *orphans_[static_cast<size_t>(kFirstOrphan - key)];
  const size_t index = static_cast<size_t>(key);
  if (index >= entries_.size()) entries_.resize(index + 1);
  if (entries_[index] == nullptr) entries_[index] = std::make_unique<Entry>();
  return *entries_[index];
}

bool Registrations::HasData(uint64_t data) const {
  bool any = false;
  ForEach([&](int, const Entry& entry) { any |= entry.socket && entry.asked.data.u64 == data; });
  return any;
}

bool Registrations::Add(int key, Socket* socket, const Asked& asked, bool alone) {
  Entry& entry = At(key);
  if (entry.socket) return false;
  entry.socket = SocketRef::To(socket);
  entry.asked = asked;
  ++entry.version;
  AskNext(key, entry, alone);
  return true;
}

int Registrations::AddOrphan(SocketRef socket, const Asked& asked, int link) {
  size_t i = 0;
  while (i < orphans_.size() && orphans_[i]->socket) ++i;
  if (i == orphans_.size()) orphans_.push_back(std::make_unique<Entry>());
  Entry& entry = *orphans_[i];
  const int key = kFirstOrphan - static_cast<int>(i);
  entry.asked = asked;
  entry.socket = std::move(socket);
  entry.link = link;
  ++entry.version;
  MakeCandidate(key, entry);
  return key;
}

// The next wait looks at the events now asked for, edge or not, as the kernel does.
void Registrations::Change(int key, Entry& entry, const epoll_event& event, bool alone) {
  entry.asked = {.events = event.events, .data = event.data};
  ++entry.version;
  AskNext(key, entry, alone);
}

SocketRef Registrations::TakeOut(int number, Asked* asked) {
  const size_t index = static_cast<size_t>(number);
  if (number < 0 || index >= entries_.size() || entries_[index] == nullptr) return {};
  Entry& entry = *entries_[index];
  Unwatch(entry);
  *asked = entry.asked;
  return std::move(entry.socket);
}

SocketRef Registrations::Drop(int key, int* link) {
  Entry* const entry = Find(key);
  if (entry == nullptr) return {};
  Unwatch(*entry);
  *link = std::exchange(entry->link, -1);
  return std::move(entry->socket);
}

Registrations::Sockets Registrations::Clear() {
  Sockets sockets;
  ForEach([&](int key, Entry& entry) {
    if (entry.twin >= 0) Unwatch(entry);
    HiddenFds::Close(entry.link);
    if (entry.socket) sockets.emplace_back(key, std::move(entry.socket));
  });
  devices_.clear();
  device_count_ = 0;
  kernel_links_ = 0;
  stays_cold_ = no_room_ = false;
  warm_.clear();
  entries_.clear();
  orphans_.clear();
  candidates_.clear();
  return sockets;
}

Registrations::Sockets Registrations::Orphans() const {
  Sockets sockets;
  for (size_t i = 0; i < orphans_.size(); ++i) {
    if (orphans_[i]->socket)
      sockets.emplace_back(kFirstOrphan - static_cast<int>(i), SocketRef::To(orphans_[i]->socket.get()));
  }
  return sockets;
}

void Registrations::Disown() {
  ForEach([this](int, Entry& entry) {
    entry.registered = 0;
    CountKernelLink(entry);
  });
  while (!devices_.empty()) ForgetDevice(At(devices_.back()));
  try {
    ForEach([this](int key, Entry& entry) {
      if (entry.socket) MakeCandidate(key, entry);
    });
  } catch (const std::bad_alloc&) {
    // The child hears later, or never, of connections that it cannot use.
  }
}

// --- the inner epoll

void Registrations::Watch(int key, Entry& entry, int link_fd, short events,
                          std::shared_ptr<const verbs::Peek> peek) {
  if (peek != entry.peek) {
    AskAgain(key, entry);
    entry.SetPeek(std::move(peek));
  }
  if (entry.registered == events) return CountKernelLink(entry);
  if (events == 0) {
    AskAgain(key, entry);
    Unwatch(entry);
    return;
  }
  const KeepErrno keep;
  epoll_event event{.events = static_cast<uint32_t>(events), .data = {.u64 = static_cast<uint64_t>(key)}};
  int number = entry.twin >= 0 ? entry.twin : link_fd >= 0 ? link_fd : entry.link;
  const int operation = entry.registered == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (real.epoll_ctl(inner_, operation, number, &event) != 0 && errno == EEXIST &&
      operation == EPOLL_CTL_ADD) {
    entry.twin = HiddenFds::Duplicate(number);
    if (entry.twin >= 0) number = entry.twin;
    real.epoll_ctl(inner_, EPOLL_CTL_ADD, number, &event);
  }
  entry.link_fd = number;
  NoteDevice(key, entry, link_fd);
  entry.registered = events;
  CountKernelLink(entry);
}

void Registrations::CountKernelLink(Entry& entry) {
  const bool at_kernel = entry.registered != 0 && entry.peek == nullptr && entry.device < 0;
  if (at_kernel == entry.at_kernel) return;
  entry.at_kernel = at_kernel;
  kernel_links_.fetch_add(at_kernel ? 1 : -1, std::memory_order_relaxed);
}

void Registrations::Unwatch(Entry& entry) {
  if (entry.registered == 0) return;
  entry.registered = 0;
  if (entry.warm) std::erase_if(warm_, [&](const WarmLink& link) { return link.entry == &entry; });
  entry.SetPeek(nullptr);
  ForgetDevice(entry);
  CountKernelLink(entry);
  const KeepErrno keep;
  real.epoll_ctl(inner_, EPOLL_CTL_DEL, entry.link_fd, nullptr);
  HiddenFds::Close(std::exchange(entry.twin, -1));
}

void Registrations::UnwatchDeleted(int key) {
  if (key >= 0 && static_cast<size_t>(key) < entries_.size() && entries_[key] != nullptr)
    Unwatch(*entries_[key]);
}

// The entry is in the inner epoll under `link_fd`.
void Registrations::NoteDevice(int key, Entry& entry, int link_fd) {
  // Only an RNIC of the kernel's has a separate descriptor for the link.
  if (link_fd < 0 || link_fd == key || entry.device >= 0) return;
  entry.device = static_cast<int>(devices_.size());
  devices_.push_back(key);
  device_count_.store(devices_.size(), std::memory_order_relaxed);
}

void Registrations::ForgetDevice(Entry& entry) {
  if (entry.device < 0) return;
  const size_t place = static_cast<size_t>(std::exchange(entry.device, -1));
  const int last = devices_.back();
  devices_.pop_back();
  if (place < devices_.size()) {
    devices_[place] = last;
    At(last).device = static_cast<int>(place);
  }
  device_count_.store(devices_.size(), std::memory_order_relaxed);
}

void Registrations::AddDevices(DeviceSpin* out) {
  if (devices_.size() > DeviceLook::kMostSockets) return;
  for (const int key : devices_) {
    const Entry* const entry = Find(key);
    if (entry != nullptr && entry->asked.armed)
      out->Add(SocketRef::To(entry->socket.get()), entry->asked.events);
  }
}

void Registrations::StayCold(Work* out) {
  stays_cold_ = true;
  ForEach([&](int key, Entry& entry) {
    AskAgain(key, entry);
    if (entry.socket && entry.peek != nullptr) out->push_back(JobOf(key, entry));
  });
}

// --- what may have something to report

void Registrations::MakeCandidate(int key, Entry& entry) {
  if (entry.candidate) return;
  entry.candidate = true;
  candidates_.push_back(key);
}

void Registrations::AskNext(int key, Entry& entry, bool alone) {
  entry.told = alone && entry.warm && !entry.candidate;
  if (!entry.told) MakeCandidate(key, entry);
}

bool Registrations::HasCandidates() const {
  const auto told = [](const WarmLink& link) { return link.entry->told && link.IsWatched(); };
  return !candidates_.empty() || std::any_of(warm_.begin(), warm_.end(), told);
}

void Registrations::TakeCandidates(Work* out, bool keep) {
  if (candidates_.empty()) return;
  out->reserve(candidates_.size());
  for (const int key : candidates_) {
    Entry& entry = At(key);
    if (!keep) entry.candidate = false;
    if (entry.socket) out->push_back(JobOf(key, entry));
  }
  if (!keep) candidates_.clear();
}

void Registrations::PutBack(const Work& work, size_t first) {
  no_room_ = true;
  absl::InlinedVector<int, 64> keys;
  for (size_t i = first; i < work.size(); ++i) {
    Entry* const entry = Find(work[i].key);
    if (entry == nullptr || entry->candidate) continue;
    entry->candidate = true;
    keys.push_back(work[i].key);
  }
  candidates_.insert(candidates_.begin(), keys.begin(), keys.end());
}

bool Registrations::ReportOne(const Job& job, const StreamSocket::Watch::Readiness& readiness, bool alone,
                              epoll_event* out) {
  const int key = job.key;
  Entry* const entry = Find(key);
  if (entry == nullptr) return false;
  if (entry->version != job.version) {
    MakeCandidate(key, *entry);
    return false;
  }
  const uint32_t ready = entry->asked.Holding(readiness);
  if (ready == 0) {
    entry->asked.Saw(readiness);
    return false;
  }
  Warm(key, *entry);
  *out = {.events = ready, .data = entry->asked.data};
  NoteReported(key, *entry, readiness, alone);
  return true;
}

void Registrations::NoteReported(int key, Entry& entry, const StreamSocket::Watch::Readiness& readiness,
                                 bool alone) {
  entry.asked.Saw(readiness);
  ++entry.version;
  if ((entry.asked.events & EPOLLONESHOT) != 0) {
    entry.asked.armed = false;
  } else if ((entry.asked.events & EPOLLET) == 0) {
    AskNext(key, entry, alone);
  }
}

// --- connections that several processes hold

Time Registrations::LookAtShared(Time now) {
  if (now < next_look_) return next_look_;
  next_look_ = now + kSharedLook;
  int count = 0;
  ForEach([&](int key, Entry& entry) {
    if (!entry.shared) return;
    if (!entry.socket) {
      entry.shared = false;
      return;
    }
    ++count;
    MakeCandidate(key, entry);
  });
  shared_count_ = count;
  return count == 0 ? kNever : next_look_;
}

void Registrations::NoteShared(int key, bool shared) {
  Entry* const entry = Find(key);
  if (entry == nullptr || entry->shared == shared) return;
  entry->shared = shared;
  shared_count_.fetch_add(shared ? 1 : -1);
}

}  // namespace sdp::preload
