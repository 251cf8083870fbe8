// Epoll sets inside epoll sets. The kernel also calls an inner set readable for bytes of a link that are no
// news to the program. A kick for an event that was reported already makes the kernel report an edge. So the
// library checks what the kernel reports of inner sets before the program gets it.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/lasting.h"
#include "preload/readiness/nested.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/real_calls.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

// An epoll descriptor, with or without a set, that was put into another.
struct Nesting {
  int outer;  // a number of the outer descriptor
  int inner;
  epoll_event event;
  // Whether no other registration of the outer descriptor has the same data, so that an event with it is this
  // one's. Found out (`asked`) only when it first matters: programs without TCP sockets nest sets, too.
  bool asked = false;
  bool alone = false;
  bool renamed = false;  // the kernel's number for the inner one is closed; a duplicate keeps it

  [[nodiscard]] bool IsOf(int epfd, int fd) const {
    return EpollNumbers::AreDuplicates(outer, epfd) && inner == fd && !renamed;
  }
};

constinit std::atomic<bool> any{false};

struct Table {
  Mutex mutex;
  absl::InlinedVector<Nesting, 16> nested;  // inline, since programs without TCP sockets have nestings, too
};
Table& table() { return Lasting<Table>(); }

bool IsEpoll(int fd) {
  if (EpollNumbers::GroupOf(fd) != 0) return true;
  // The descriptor may have been made without the library's knowledge. One with a file type is no epoll
  // descriptor.
  struct stat status {};
  if (Confined() || fstat(fd, &status) != 0 || (status.st_mode & S_IFMT) != 0) return false;
  constexpr std::string_view kEpoll = "anon_inode:[eventpoll]";
  char path[32];
  char target[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const KeepErrno keep;
  const ssize_t length = readlink(path, target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<size_t>(length)) == kEpoll;
}

// Returns whether the kernel has no registration of `epfd` with this data except that of `fd`. Returns false
// if that cannot be found out.
bool KernelKnowsNoOther(int epfd, int fd, uint64_t data) {
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epfd);
  const KeepErrno keep;
  const int info = Confined() ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (info < 0) return false;
  std::array<char, 2048> text;
  size_t kept = 0;
  ssize_t got;
  bool alone = true;
  while ((got = real.read(info, text.data() + kept, text.size() - kept)) > 0) {
    std::string_view rest(text.data(), kept + static_cast<size_t>(got));
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      text[static_cast<size_t>(rest.data() + end - text.data())] = '\0';
      int other = -1;
      unsigned long long its = 0;
      if (sscanf(rest.data(), "tfd: %d events: %*x data: %llx", &other, &its) == 2 && other != fd &&
          its == data)
        alone = false;
    }
    kept = rest.size();
    std::memmove(text.data(), rest.data(), kept);
  }
  real.close(info);
  return alone && got == 0;
}

// Returns the registration of the inner set that an event of `epfd` reports, if the set may turn out to have
// nothing to report.
std::optional<Nesting> NestingOf(int epfd, const epoll_event& event) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  for (Nesting& n : t.nested) {
    if (n.event.data.u64 != event.data.u64 || !EpollNumbers::AreDuplicates(n.outer, epfd)) continue;
    if (!std::exchange(n.asked, true)) {
      n.alone = !AnEpollSetHasData(epfd, event.data.u64) && KernelKnowsNoOther(epfd, n.inner, event.data.u64);
    }
    if (n.alone) return n;
  }
  return std::nullopt;
}

// The kernel has used up an EPOLLONESHOT for nothing. Returns false if it cannot be armed again.
bool GiveShotBack(int epfd, const Nesting& nesting) {
  if (nesting.renamed) return false;
  epoll_event event = nesting.event;
  return real.epoll_ctl(epfd, EPOLL_CTL_MOD, nesting.inner, &event) == 0;
}

// The kernel nests sets no deeper than this. The table may hold a nesting that the kernel refused because of
// the depth or of a circle.
constexpr int kDeepest = 5;

// Lets the sets in `epfd`, at any depth, take in what they were woken for. The kernel no longer calls sets
// without anything to report readable. Returns whether there are inner sets.
bool SettleInside(int epfd, int depth) {
  if (depth == kDeepest || !any.load(std::memory_order_relaxed)) return false;
  absl::InlinedVector<int, 16> inner;
  {
    Table& t = table();
    std::lock_guard lock(t.mutex);
    for (const Nesting& n : t.nested) {
      if (EpollNumbers::AreDuplicates(n.outer, epfd)) inner.push_back(n.inner);
    }
  }
  for (const int fd : inner) {
    if (const EpollSetRef set = FindEpollSet(fd)) set->ProgressAndCheck();
    SettleInside(fd, depth + 1);
  }
  return !inner.empty();
}

// Joins events in [told, end) of an inner set that is already among the first `told`. Returns the new end.
// Other registrations may share their data.
int Merge(int epfd, epoll_event* events, int told, int end) {
  int kept = told;
  for (int i = told; i < end; ++i) {
    epoll_event* const known = std::find_if(
        events, events + told, [&](const epoll_event& e) { return e.data.u64 == events[i].data.u64; });
    if (known != events + told && NestingOf(epfd, events[i])) {
      known->events |= events[i].events;
    } else {
      events[kept++] = events[i];
    }
  }
  return kept;
}

}  // namespace

bool NestedIsIdle(int epfd) {
  const EpollSetRef set = FindEpollSet(epfd);
  if (set && set->ProgressAndCheck()) return false;
  if (!SettleInside(epfd, 0) && !set) return false;
  pollfd poll{.fd = epfd, .events = POLLIN, .revents = 0};
  return real.poll(&poll, 1, 0) == 0;
}

void Nestings::Note(int epfd, int operation, int fd, const epoll_event* event) {
  const bool nests = operation == EPOLL_CTL_ADD && !FdTable::Has(fd) && IsEpoll(fd);
  if (!nests && !any.load(std::memory_order_relaxed)) return;
  {
    Table& t = table();
    std::lock_guard lock(t.mutex);
    const auto known =
        std::find_if(t.nested.begin(), t.nested.end(), [&](const Nesting& n) { return n.IsOf(epfd, fd); });
    if (operation == EPOLL_CTL_DEL) {
      if (known != t.nested.end()) t.nested.erase(known);
      return;
    }
    if (!MayRead(event, sizeof *event)) return;
    for (Nesting& n : t.nested) {
      if (EpollNumbers::AreDuplicates(n.outer, epfd) && n.inner != fd && n.event.data.u64 == event->data.u64)
        n.asked = true, n.alone = false;
    }
    if (known != t.nested.end()) {
      if (operation == EPOLL_CTL_MOD) *known = {.outer = epfd, .inner = fd, .event = *event};
      return;
    }
    if (!nests) return;
    t.nested.push_back({.outer = epfd, .inner = fd, .event = *event});
    any.store(true, std::memory_order_relaxed);
  }
  if (const EpollSetRef set = FindEpollSet(fd)) set->SetNested();
}

// A duplicate keeps the registrations alive, whichever number was passed for them.
void Nestings::Forget(int fd) {
  if (!any.load(std::memory_order_relaxed)) return;
  Table& t = table();
  std::lock_guard lock(t.mutex);
  const auto is_in = [&](const Nesting& n) { return n.outer == fd || n.inner == fd; };
  if (std::none_of(t.nested.begin(), t.nested.end(), is_in)) return;
  const int other = EpollNumbers::AnotherOf(fd);
  for (Nesting& n : t.nested) {
    if (n.outer == fd) n.outer = other;
    if (n.inner != fd) continue;
    n.inner = other;
    n.renamed = true;
  }
  t.nested.erase(std::remove_if(t.nested.begin(), t.nested.end(),
                                [](const Nesting& n) { return n.outer < 0 || n.inner < 0; }),
                 t.nested.end());
}

bool Nestings::HaveInside(int epfd) {
  if (!any.load(std::memory_order_relaxed)) return false;
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return std::any_of(t.nested.begin(), t.nested.end(),
                     [&](const Nesting& n) { return EpollNumbers::AreDuplicates(n.inner, epfd); });
}

int Nestings::Settle(int epfd, epoll_event* events, int count, int max_events) {
  if (count <= 0 || !any.load(std::memory_order_relaxed) || !HaveEpollSets()) return count;
  const NoCancellation no_cancellation;  // the kernel has given these events and forgotten them
  bool edges = false;
  const auto is_idle = [&](const epoll_event& event) {
    const std::optional<Nesting> nesting = NestingOf(epfd, event);
    if (!nesting) return false;
    if (NestedIsIdle(nesting->inner))
      return (nesting->event.events & EPOLLONESHOT) == 0 || GiveShotBack(epfd, *nesting);
    edges = edges || (nesting->event.events & EPOLLET) != 0;
    return false;
  };
  int kept = static_cast<int>(std::remove_if(events, events + count, is_idle) - events);
  if (!edges || kept == max_events) return kept;
  // Taking events in has kicked the inner set. That kick is the edge that is reported here, not another one.
  const int more = std::max(EpollWaitAtOnce(epfd, events + kept, max_events - kept), 0);
  const int end = Merge(epfd, events, kept, kept + more);
  return static_cast<int>(std::remove_if(events + kept, events + end, is_idle) - events);
}

void Nestings::LockForFork() { table().mutex.lock(); }
void Nestings::UnlockAfterFork() { table().mutex.unlock(); }

}  // namespace sdp::preload
