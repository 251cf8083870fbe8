#include "preload/readiness/epoll_set.h"

#include <algorithm>
#include <array>
#include <utility>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/hidden_fds.h"
#include "preload/link_calls.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/watch.h"
#include "preload/spare_descriptors.h"

namespace sdp::preload {
namespace {

// The number of links that progress in one round. Small, so that the application answers the first while the
// last still come in.
constexpr int kBatch = 8;

}  // namespace

bool EpollSet::Serves(int epfd) {
  if (inner_ < 0) return false;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = Cookie()}};
  const KeepErrno keep;
  return real.epoll_ctl(epfd, EPOLL_CTL_MOD, inner_, &event) == 0;
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
  shares_inner_ = false;
  group_ = EpollNumbers::GroupOf(epfd);
  const int inner = real.epoll_create1(EPOLL_CLOEXEC);
  if (inner >= 0 && HiddenFds::HideTracked(inner, &inner_) >= 0 && kick_.Open(group_)) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kKickTag}};
    if (real.epoll_ctl(inner_, EPOLL_CTL_ADD, kick_.fd(), &event) == 0) {
      event = {.events = EPOLLIN, .data = {.u64 = Cookie()}};
      if (real.epoll_ctl(epfd, EPOLL_CTL_ADD, inner_, &event) == 0) return true;
    }
  }
  const KeepErrno keep;
  Close();
  return false;
}

void EpollSet::Close() {
  Registrations::Sockets sockets;
  {
    std::lock_guard lock(mutex_);
    sockets = sockets_.Clear();
  }
  for (auto& [key, socket] : sockets) Watch(Stream(socket)).RemoveObserver(this, key);
  listeners_.Clear();
  HiddenFds::Close(inner_.exchange(-1));
  kick_.Close();
  bell_.Close();
}

const verbs::BellName* EpollSet::OpenBell() {
  if (Confined() || kick_.nested() || shares_inner_) return nullptr;
  std::lock_guard lock(mutex_);
  if (bell_.fd() >= 0) return &bell_.name();
  if (!bell_.Open()) return nullptr;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kBellTag}};
  if (real.epoll_ctl(inner_, EPOLL_CTL_ADD, bell_.fd(), &event) == 0) return &bell_.name();
  bell_.Close();
  return nullptr;
}

// --- ReadinessObserver

void EpollSet::OnChange(int fd) {
  std::lock_guard lock(mutex_);
  Entry* const entry = sockets_.Find(fd);
  if (entry == nullptr) return;
  sockets_.MakeCandidate(fd, *entry);
  kick_.Give();
}

void EpollSet::OnWatch(int fd, int link_fd, short events, Session& session) {
  std::shared_ptr<const verbs::Peek> peek = session.Peek();
  std::lock_guard lock(mutex_);
  if (Entry* const entry = sockets_.Find(fd)) sockets_.Watch(fd, *entry, link_fd, events, std::move(peek));
}

// The kernel takes over, with the events that the application asked for.
void EpollSet::OnPlain(int fd) {
  SocketRef socket;  // dropped after the lock
  std::lock_guard lock(mutex_);
  Entry* const entry = sockets_.Find(fd);
  if (entry == nullptr) return;
  const Asked& asked = entry->asked;
  sockets_.Unwatch(*entry);
  const KeepErrno keep;
  epoll_event event{.events = asked.armed ? asked.events : EPOLLONESHOT, .data = asked.data};
  real.epoll_ctl(epfd_, EPOLL_CTL_ADD, Registrations::NumberOf(fd, *entry), &event);
  socket = std::move(entry->socket);
  // The kernel's registration lives as long as the duplicate that keeps the library's.
  HiddenFds::Close(std::exchange(entry->link, -1));
}

// From here on the kernel reports this socket, like any listener.
void EpollSet::OnListen(int key, const Watch::Readiness& readiness) {
  epoll_event event{};
  int epfd;
  int number;
  SocketRef socket;
  {
    std::lock_guard lock(mutex_);
    const Entry* const entry = sockets_.Find(key);
    if (entry == nullptr) return;
    event = {.events = entry->asked.armed ? entry->asked.events : EPOLLONESHOT, .data = entry->asked.data};
    epfd = epfd_;
    number = Registrations::NumberOf(key, *entry);
    socket = SocketRef::To(entry->socket.get());
  }
  const KeepErrno keep;
  listeners_.Control(epfd, EPOLL_CTL_ADD, number, std::max(key, -1), &Stream(socket), &event, readiness);
  Drop(key);
}

// --- What comes over the inner epoll, and whether there is anything to report

bool EpollSet::ProgressLinks(bool take_kick) {
  bool kicked = false;
  epoll_event ready[kBatch];
  constexpr timespec kAtOnce{};
  const int count = Confined() ? WaitForEpoll(inner_, ready, kBatch, &kAtOnce, nullptr)
                               : real.epoll_wait(inner_, ready, kBatch, 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t data = ready[i].data.u64;
    if (data == kKickTag) {
      kicked = true;
      if (take_kick) kick_.Take();
    } else if (data == kBellTag) {
      ProgressRung();
    } else if (ListenerRegistrations::IsMarked(data)) {
      const int sdp_fd = ListenerRegistrations::SdpFdOf(data);
      (ready[i].events & EPOLLHUP) != 0 ? listeners_.Drop(sdp_fd) : listeners_.TakeOn(sdp_fd);
    } else {
      bool polled = false;
      // Null for a link that was warm already: it is looked at in memory.
      if (const SocketRef socket = SocketOfLink(static_cast<int>(data), &polled))
        Watch(Stream(socket)).Progress(polled);
    }
  }
  return kicked;
}

// What a stranger has rung with names no link, or one that is looked at in vain.
void EpollSet::ProgressRung() {
  std::array<uint64_t, iwarp::Bell::kMostAtOnce> keys;
  const size_t count = !Confined() ? bell_.Take(keys)
                       : LinkRecv(bell_.fd(), keys.data(), sizeof keys[0], MSG_DONTWAIT) == sizeof keys[0]
                           ? 1
                           : 0;
  for (size_t i = 0; i < count; ++i) {
    bool polled = false;
    if (const SocketRef socket = SocketOfLink(static_cast<int>(keys[i]), &polled))
      Watch(Stream(socket)).TakeRung(polled);
  }
}

SocketRef EpollSet::SocketOfLink(int key, bool* polled) {
  std::lock_guard lock(mutex_);
  Entry* const entry = sockets_.Find(key);
  if (entry == nullptr) {
    sockets_.UnwatchDeleted(key);  // deleted by the application earlier: now worth the call
    return {};
  }
  if (entry->warm) return {};
  sockets_.Warm(key, *entry);
  sockets_.MakeCandidate(key, *entry);
  *polled = entry->warm && !kick_.heard();
  return SocketRef::To(entry->socket.get());
}

bool EpollSet::HasCandidates() {
  std::lock_guard lock(mutex_);
  return sockets_.HasCandidates();
}

Time EpollSet::LookAtShared() {
  if (!HasShared()) return kNever;
  const Time now = Now();
  std::lock_guard lock(mutex_);
  return sockets_.LookAtShared(now);
}

void EpollSet::SetNested() {
  Registrations::Work links;
  {
    std::lock_guard lock(mutex_);
    kick_.SetNested();
    sockets_.StayCold(&links);
    if (sockets_.HasCandidates()) kick_.Give();
  }
  for (const Registrations::Job& job : links) Watch(Stream(job.socket)).Progress();
}

void EpollSet::CoolDown() {
  Registrations::Work links;
  {
    std::lock_guard lock(mutex_);
    sockets_.TakeWarm(&links);
  }
  for (const Registrations::Job& job : links) Watch(Stream(job.socket)).Progress();
}

bool EpollSet::AnyHolds() {
  Registrations::Work work;
  {
    std::lock_guard lock(mutex_);
    sockets_.TakeCandidates(&work, /*keep=*/true);
  }
  for (const Registrations::Job& job : work) {
    const Watch::Readiness readiness = Watch(Stream(job.socket)).GetReadiness();
    std::lock_guard lock(mutex_);
    sockets_.NoteShared(job.key, readiness.shared);
    const Entry* const entry = sockets_.Find(job.key);
    if (entry != nullptr && entry->asked.Holding(readiness) != 0) return true;
  }
  return false;
}

// Reports nothing, so the kick stays while any socket holds something. To outer sets it is then
// level-triggered.
bool EpollSet::ProgressAndCheck() {
  CoolDown();
  const bool kicked = ProgressLinks(/*take_kick=*/false);
  (void)LookAtShared();
  if (!AnyHolds()) {
    if (!kicked) return false;
    kick_.Take();
    // A change since then may have been covered by the kick just taken.
    if (!AnyHolds()) return false;
  }
  // No kick if one is given already: each kick is another event to an edge-triggered outer set.
  if (kick_.nested() && !kick_.given()) {
    std::lock_guard lock(mutex_);
    kick_.Give();
  }
  return true;
}

}  // namespace sdp::preload
