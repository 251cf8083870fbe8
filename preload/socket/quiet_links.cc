#include "preload/socket/quiet_links.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/hidden_fds.h"
#include "preload/lasting.h"
#include "preload/real_calls.h"
#include "preload/socket/background.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

// Edge-triggered, and for room too: so the set reports bytes even if the program was faster and has read
// them. Else each arrival would wake the helper for nothing.
constexpr uint32_t kWatched = EPOLLIN | EPOLLRDHUP | EPOLLOUT | EPOLLET;

}  // namespace

// The task that the helper runs.
class QuietLinks::Task final : public Background::Task {
 public:
  Background::Wait Run(Time now) override;
  Socket* owner() override { return nullptr; }

 private:
  struct Due {
    SocketRef owner;
    Link* link;
  };
  // Collects the links in use, if it is time to look. Returns false if the task is over.
  bool BeginRun(Time now);
  // Handles the events of the watched links. `takes`: links watched since BeginRun() with something to read
  // are due. Those that have ended are due anyway: their end may lie behind bytes.
  void TakeEvents(Time now, bool takes);
  Background::Wait EndRun(Time now, bool served);
  void Add(Link* link);

  std::vector<Due> due_;
};

struct QuietLinks::State {
  struct Place {
    Link* link = nullptr;     // null: free
    uint32_t version = 0;     // grows with each link that had the place
    uint32_t watched_in = 0;  // the run in which the watch began
    int fd = -1;              // watched
    bool in_use = false;      // looked at from time to time
    Time since{};             // in use since then
  };

  Mutex mutex;
  std::vector<Place> places;
  std::vector<uint32_t> free;
  size_t in_use = 0;
  Time next_look = kNever;  // kNever also if the helper has no links to look at
  uint32_t run = 0;
  std::atomic<bool> stopped{false};
  std::atomic<int> epoll_fd{-1};
  Task task;

  [[nodiscard]] bool Knows(const Link* link) const { return link->known_; }
  Place& PlaceOf(const Link* link) { return places[link->place_]; }
  void BeInUse(Place& place, Time now) {
    if (!std::exchange(place.in_use, true)) ++in_use;
    place.link->watch_ = Link::Watched::kNot;
    place.fd = -1;
    place.since = now;
  }
  // A process under a filter may have no epoll set but the program's.
  [[nodiscard]] bool may_watch() const { return !stopped && !Confined(); }
  [[nodiscard]] bool Open() {
    if (epoll_fd.load() >= 0) return true;
    const int fd = real.epoll_create1(EPOLL_CLOEXEC);
    return fd >= 0 && HiddenFds::HideTracked(fd, &epoll_fd) >= 0;
  }
  // epoll_ctl of the set. The library takes every number out, under the lock, before the number closes.
  // ThreadSanitizer sees the program's fclose before this library does, so it is not shown the call.
  int Control(int operation, int fd, epoll_event* event = nullptr) {
    return static_cast<int>(syscall(SYS_epoll_ctl, epoll_fd.load(), operation, fd, event));
  }
};

QuietLinks::State& QuietLinks::state() { return Lasting<State>(); }

void QuietLinks::Enter(Link* link) {
  State& s = state();
  if (s.Knows(link) || Confined()) return;
  {
    std::lock_guard lock(s.mutex);
    try {
      if (s.free.empty()) {
        s.free.reserve(s.places.size() + 1);  // so that Leave() cannot fail
        s.places.emplace_back();
        s.free.push_back(static_cast<uint32_t>(s.places.size() - 1));
      }
    } catch (const std::bad_alloc&) {
      return;
    }
    link->place_ = s.free.back();
    s.free.pop_back();
    link->known_ = true;
    State::Place& place = s.PlaceOf(link);
    place.link = link;
    s.BeInUse(place, Now());
    if (s.stopped || s.next_look != kNever) return;
    s.next_look = place.since + kLook;
  }
  if (Background::Add(&s.task, kLook)) return;
  std::lock_guard lock(s.mutex);
  s.next_look = kNever;
}

void QuietLinks::Leave(Link* link) {
  State& s = state();
  if (!s.Knows(link)) return;
  std::lock_guard lock(s.mutex);
  State::Place& place = s.PlaceOf(link);
  if (place.in_use) --s.in_use;
  if (place.fd >= 0 && s.may_watch()) s.Control(EPOLL_CTL_DEL, place.fd);
  link->watch_ = Link::Watched::kNot;
  place = {.version = place.version + 1};
  s.free.push_back(link->place_);
  link->known_ = false;
}

bool QuietLinks::Watch(Link* link, int fd, WatchFor whom) {
  State& s = state();
  if (!s.Knows(link)) return true;
  bool opened = false;
  {
    std::lock_guard lock(s.mutex);
    if (!s.may_watch()) return true;
    opened = s.epoll_fd.load() < 0;
    if (!s.Open()) return false;
    State::Place& place = s.PlaceOf(link);
    const bool for_sleeper = whom == WatchFor::kSleeper;
    if (place.fd >= 0 && (for_sleeper || !place.in_use)) return true;
    epoll_event event{.events = for_sleeper ? kWatched & ~EPOLLOUT : kWatched,
                      .data = {.u64 = uint64_t{place.version} << 32 | link->place_}};
    int result = s.Control(place.fd >= 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    // The number was closed unseen, and another process has the link, too.
    if (result != 0 && errno == EEXIST) result = s.Control(EPOLL_CTL_MOD, fd, &event);
    if (result != 0) return false;
    if (!for_sleeper && std::exchange(place.in_use, false)) --s.in_use;
    place.fd = fd;
    link->watch_ = for_sleeper ? Link::Watched::kForSleeper : Link::Watched::kForProgram;
    place.watched_in = s.run;
  }
  if (opened) Background::Add(&s.task, Duration::zero());  // it waits for the set from now on
  return true;
}

void QuietLinks::Unwatch(Link* link, int fd) {
  State& s = state();
  if (!s.Knows(link)) return;
  bool tell = false;
  {
    std::lock_guard lock(s.mutex);
    State::Place& place = s.PlaceOf(link);
    if (place.fd != fd) return;
    if (s.may_watch()) s.Control(EPOLL_CTL_DEL, fd);
    s.BeInUse(place, Now());
    tell = s.may_watch() && s.next_look == kNever;
    if (tell) s.next_look = place.since + kLook;
  }
  if (tell) Background::Add(&s.task, kLook);
}

bool QuietLinks::stopped() { return state().stopped; }

void QuietLinks::Stop() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.stopped = true;
}

void QuietLinks::GoOn() {
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    s.stopped = false;
    if (s.places.size() == s.free.size()) return;
    s.next_look = Now() + kLook;
  }
  Background::Add(&s.task, kLook);
}

void QuietLinks::LockForFork() { state().mutex.lock(); }

void QuietLinks::UnlockAfterFork() { state().mutex.unlock(); }

void QuietLinks::ForgetAfterFork() {
  State& s = state();
  for (const State::Place& place : s.places) {
    if (place.link == nullptr) continue;
    place.link->watch_ = Link::Watched::kNot;
    place.link->relied_on_ = 0;  // by the parent's threads
    place.link->known_ = false;
  }
  s.places.clear();
  s.free.clear();
  s.in_use = 0;
  s.next_look = kNever;
  HiddenFds::Close(s.epoll_fd.exchange(-1));
}

void QuietLinks::Task::Add(Link* link) {
  if (!link->owner()->TryRef()) return;  // about to leave
  due_.push_back({.owner = SocketRef(link->owner()), .link = link});
}

bool QuietLinks::Task::BeginRun(Time now) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.may_watch()) return false;
  ++s.run;
  if (now < s.next_look) return true;
  due_.reserve(s.in_use);
  for (const State::Place& place : s.places) {
    if (place.link != nullptr && place.in_use && place.since <= now - kUnread) Add(place.link);
  }
  return true;
}

void QuietLinks::Task::TakeEvents(Time now, bool takes) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.may_watch() || s.epoll_fd.load() < 0) return;
  std::array<epoll_event, 64> events;
  int count;
  do {
    count = real.epoll_wait(s.epoll_fd.load(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t cookie = events[static_cast<size_t>(i)].data.u64;
      const auto number = static_cast<uint32_t>(cookie);
      if (number >= s.places.size()) continue;
      State::Place& place = s.places[number];
      if (place.link == nullptr || place.fd < 0 || place.version != cookie >> 32) continue;
      const uint32_t seen = events[static_cast<size_t>(i)].events;
      const bool fresh = place.watched_in == s.run;
      if (fresh && (seen & ~EPOLLOUT) == 0) continue;  // every added link reports room once
      // While the program uses the link, its bytes do not wake the helper.
      s.Control(EPOLL_CTL_DEL, place.fd);
      s.BeInUse(place, now);
      const bool ended = (seen & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      if ((fresh && (takes || ended)) || place.link->relied_on()) Add(place.link);
    }
  } while (count == static_cast<int>(events.size()));
}

Background::Wait QuietLinks::Task::EndRun(Time now, bool served) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.in_use == 0) {
    s.next_look = kNever;
  } else if (s.next_look == kNever || now >= s.next_look) {
    s.next_look = now + (served ? kSoon : kLook);
  }
  return {.fd = s.epoll_fd.load(), .events = POLLIN, .deadline = s.next_look};
}

Background::Wait QuietLinks::Task::Run(Time now) {
  due_.clear();  // left by a run that found no memory
  if (!BeginRun(now)) return {.done = true};
  for (const Due& due : due_) due.link->LookIfUnread(now - kUnread);
  due_.clear();
  TakeEvents(now, /*takes=*/true);
  for (const Due& due : due_) due.link->TakeUnread();
  const size_t served = due_.size();
  if (served != 0) TakeEvents(now, /*takes=*/false);
  for (size_t i = served; i < due_.size(); ++i) due_[i].link->TakeUnread();
  due_.clear();
  return EndRun(now, served != 0);
}

}  // namespace sdp::preload
