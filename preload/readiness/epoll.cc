// epoll_ctl and epoll_wait: which epoll descriptors have an EpollSet.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/descriptor_array.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/program_memory.h"
#include "preload/readiness/epoll_set.h"
#include "preload/readiness/fork.h"
#include "preload/readiness/nested.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

constexpr int kPass = static_cast<int>(kPassThrough);

DescriptorArray<EpollSet*> by_fd;

std::atomic<int> numbers_in_use{0};
// Sets that are open, counted by the group of their descriptor (roughly).
std::array<std::atomic<int>, 64> open_sets;
std::atomic<int>& OpenSets(uint32_t group) { return open_sets[group % open_sets.size()]; }
std::atomic<bool> any_nested{false};

// An epoll descriptor, with a set or without, that was put into another.
struct Nesting {
  int outer;
  int inner;
  epoll_event event;
  // No other registration of the outer one has the same data: an event with it is this one's. Asked for when that first matters: a program
  // without TCP sockets nests sets, too.
  bool asked = false;
  bool alone = false;
};

// Changes of by_fd, and every set there ever was.
struct Sets {
  Mutex mutex;
  std::vector<std::unique_ptr<EpollSet>> all;
  std::vector<EpollSet*> retired;      // may be opened again
  std::vector<std::pair<int, EpollSet*>> in_use;  // what by_fd says, to walk through
  absl::InlinedVector<Nesting, 16> nested;  // programs without TCP sockets have some, too, and allocate nothing for it
};
Sets& sets() {
  alignas(Sets) static std::byte room[sizeof(Sets)];
  static Sets* const instance = new (room) Sets;
  return *instance;
}

// With the lock held.
void Enter(Sets& s, int epfd, EpollSet* set) {
  std::atomic<EpollSet*>* const slot = by_fd.FindOrAdd(epfd);
  if (slot == nullptr) return;
  slot->store(set, std::memory_order_seq_cst);
  s.in_use.emplace_back(epfd, set);
  numbers_in_use.store(static_cast<int>(s.in_use.size()));
}

EpollSet* Unused(Sets& s) {
  for (EpollSet*& set : s.retired) {
    if (set->users.load(std::memory_order_acquire) != 0) continue;
    EpollSet* const found = set;
    set = s.retired.back();
    s.retired.pop_back();
    return found;
  }
  return s.all.emplace_back(std::make_unique<EpollSet>()).get();
}

// With the lock held: a number that we do not know may be a duplicate of one that we do, from before that one had a set.
bool FindDuplicate(Sets& s, int epfd) {
  for (const auto& [number, set] : s.in_use) {
    if (!set->Serves(epfd)) continue;
    Enter(s, epfd, set);
    return true;
  }
  return false;
}

bool Known(int epfd) {
  const std::atomic<EpollSet*>* const slot = by_fd.Find(epfd);
  return slot != nullptr && slot->load() != nullptr;
}

bool AreDuplicates(int one, int other) {
  const uint32_t group = EpollNumbers::GroupOf(one);
  return one == other || (group != 0 && group == EpollNumbers::GroupOf(other));
}

// The set of `epfd`, made, for EPOLL_CTL_ADD, if there is none. Empty with errno if it cannot be made.
EpollSetRef FindOrOpen(int epfd, int operation) {
  Sets& s = sets();
  {
    std::lock_guard lock(s.mutex);
    if (!Known(epfd) && !FindDuplicate(s, epfd) && operation == EPOLL_CTL_ADD) {
      EpollSet* const set = Unused(s);
      if (!set->Open(epfd)) {
        s.retired.push_back(set);
        return {};
      }
      Enter(s, epfd, set);
      OpenSets(set->group()).fetch_add(1);
      if (std::any_of(s.nested.begin(), s.nested.end(), [&](const Nesting& n) { return AreDuplicates(n.inner, epfd); })) set->SetNested();
    }
  }
  return EpollSetRef::Find(epfd);
}

bool IsEpoll(int fd) {
  if (EpollNumbers::GroupOf(fd) != 0) return true;
  // Made behind our back, perhaps. What has a file type is none.
  struct stat status {};
  if (Confined() || fstat(fd, &status) != 0 || (status.st_mode & S_IFMT) != 0) return false;
  constexpr std::string_view kEpoll = "anon_inode:[eventpoll]";
  char path[32];
  char target[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const int saved = errno;
  const ssize_t length = readlink(path, target, sizeof target);
  errno = saved;
  return length > 0 && std::string_view(target, static_cast<size_t>(length)) == kEpoll;
}

// Whether the kernel knows no registration of `epfd` with this data but that of `fd`. Not to know is no.
bool KernelKnowsNoOther(int epfd, int fd, uint64_t data) {
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epfd);
  const int saved = errno;
  const int info = Confined() ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (info < 0) {
    errno = saved;
    return false;
  }
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
      if (sscanf(rest.data(), "tfd: %d events: %*x data: %llx", &other, &its) == 2 && other != fd && its == data) alone = false;
    }
    kept = rest.size();
    std::memmove(text.data(), rest.data(), kept);
  }
  real.close(info);
  errno = saved;
  return alone && got == 0;
}

// With the lock held.
bool IsAlone(Sets& s, int epfd, int fd, uint64_t data) {
  const auto has = [&](const auto& entry) { return AreDuplicates(entry.first, epfd) && entry.second->HasData(data); };
  return std::none_of(s.in_use.begin(), s.in_use.end(), has) && KernelKnowsNoOther(epfd, fd, data);
}

// `fd` is about to be put into an epoll set, changed there or taken out.
void NoteNested(int epfd, int operation, int fd, const epoll_event* event) {
  const bool nests = operation == EPOLL_CTL_ADD && !FdTable::Has(fd) && IsEpoll(fd);
  if (!nests && !any_nested.load(std::memory_order_relaxed)) return;
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  const auto known = std::find_if(s.nested.begin(), s.nested.end(), [&](const Nesting& n) { return n.outer == epfd && n.inner == fd; });
  if (operation == EPOLL_CTL_DEL) {
    if (known != s.nested.end()) s.nested.erase(known);
    return;
  }
  if (IsNowhere(event)) return;
  for (Nesting& n : s.nested) {
    if (AreDuplicates(n.outer, epfd) && n.inner != fd && n.event.data.u64 == event->data.u64) n.asked = true, n.alone = false;
  }
  if (known != s.nested.end()) {
    if (operation == EPOLL_CTL_MOD) *known = {.outer = epfd, .inner = fd, .event = *event};
  } else if (nests) {
    s.nested.push_back({.outer = epfd, .inner = fd, .event = *event});
    any_nested.store(true, std::memory_order_relaxed);
    for (const auto& [number, set] : s.in_use) {
      if (AreDuplicates(number, fd)) set->SetNested();
    }
  }
}

void ForgetNested(int fd) {
  if (!any_nested.load(std::memory_order_relaxed)) return;
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  const auto is_gone = [&](const Nesting& n) { return n.outer == fd || n.inner == fd; };
  s.nested.erase(std::remove_if(s.nested.begin(), s.nested.end(), is_gone), s.nested.end());
}

// The inner descriptor of an event of `epfd`, if it may turn out to have nothing to report; else -1.
int InnerOf(int epfd, const epoll_event& event) {
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  for (Nesting& n : s.nested) {
    if (n.outer != epfd || n.event.data.u64 != event.data.u64 || (n.event.events & EPOLLONESHOT) != 0) continue;
    if (!std::exchange(n.asked, true)) n.alone = IsAlone(s, epfd, n.inner, event.data.u64);
    if (n.alone) return n.inner;
  }
  return -1;
}

// Takes out of what the kernel reported the inner sets that have nothing to report: they were woken for bytes of a link, or for what has
// been read since.
int DropIdleNested(int epfd, epoll_event* events, int count) {
  if (count <= 0 || !any_nested.load(std::memory_order_relaxed) || !HaveEpollSets()) return count;
  const NoCancellation no_cancellation;  // the kernel has given these events and forgotten them
  const auto is_idle = [epfd](const epoll_event& event) {
    const int inner = InnerOf(epfd, event);
    return inner >= 0 && NestedIsIdle(inner);
  };
  return static_cast<int>(std::remove_if(events, events + count, is_idle) - events);
}

// Takes the events of our own out of what the kernel reported, and notes whose they are. False if there were none.
bool DropCookies(int epfd, epoll_event* events, int* count) {
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  auto is_cookie = [&](const epoll_event& event) {
    return std::any_of(s.all.begin(), s.all.end(), [&](const auto& set) { return set->Cookie() == event.data.u64; });
  };
  int kept = static_cast<int>(std::remove_if(events, events + *count, is_cookie) - events);
  for (const auto& set : s.all) kept = set->MergeListeners(events, 0, kept);
  if (kept == *count) return false;
  if (!Known(epfd)) FindDuplicate(s, epfd);
  *count = kept;
  return true;
}

}  // namespace

// In order with what counts sleepers (plain_sleep.h).
bool HaveEpollSets() { return numbers_in_use.load(std::memory_order_seq_cst) != 0; }

EpollSetRef EpollSetRef::Find(int epfd) {
  EpollSetRef ref;
  if (!HaveEpollSets()) return ref;
  std::atomic<EpollSet*>* const slot = by_fd.Find(epfd);
  if (slot == nullptr) return ref;
  for (EpollSet* set = slot->load(); set != nullptr;) {
    set->users.fetch_add(1, std::memory_order_seq_cst);
    EpollSet* const again = slot->load(std::memory_order_seq_cst);
    if (again == set) {
      ref.set_ = set;
      return ref;
    }
    set->users.fetch_sub(1);
    set = again;
  }
  return ref;
}

EpollSetRef FindEpollSet(int epfd) {
  EpollSetRef set = EpollSetRef::Find(epfd);
  if (set || !HaveEpollSets()) return set;
  const uint32_t group = EpollNumbers::GroupOf(epfd);
  if (group == 0 || OpenSets(group).load() == 0) return set;
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  const bool duplicate = std::any_of(s.in_use.begin(), s.in_use.end(), [&](const auto& entry) { return entry.second->group() == group; });
  return duplicate && (Known(epfd) || FindDuplicate(s, epfd)) ? EpollSetRef::Find(epfd) : EpollSetRef();
}

int EpollCtl(int epfd, int operation, int fd, epoll_event* event) {
  // A socket that was registered as ours and fell back since is the kernel's now, as is everything else.
  NoteNested(epfd, operation, fd, event);
  if (!FdTable::Has(fd)) return kPass;
  EpollSetRef set = EpollSetRef::Find(epfd);
  if (!set) {
    set = FindOrOpen(epfd, operation);
    if (!set) return operation == EPOLL_CTL_ADD ? -1 : kPass;
  }
  return set->Control(epfd, operation, fd, event);
}

namespace {

// The kernel lets no more sets be inside one another. What it refused for that, or for a circle, may be among the nestings.
constexpr int kDeepest = 5;

// Lets the sets in `epfd`, at whatever depth, take in what they were woken for: those with nothing to report are readable to the kernel no more.
// Whether there are any.
bool SettleNested(int epfd, int depth) {
  if (depth == kDeepest || !any_nested.load(std::memory_order_relaxed)) return false;
  absl::InlinedVector<int, 16> inner;
  {
    Sets& s = sets();
    std::lock_guard lock(s.mutex);
    for (const Nesting& n : s.nested) {
      if (AreDuplicates(n.outer, epfd)) inner.push_back(n.inner);
    }
  }
  for (const int fd : inner) {
    if (const EpollSetRef set = FindEpollSet(fd)) set->ProgressAndCheck();
    SettleNested(fd, depth + 1);
  }
  return !inner.empty();
}

}  // namespace

bool NestedIsIdle(int epfd) {
  const EpollSetRef set = FindEpollSet(epfd);
  if (set && set->ProgressAndCheck()) return false;
  if (!SettleNested(epfd, 0) && !set) return false;
  pollfd poll{.fd = epfd, .events = POLLIN, .revents = 0};
  return real.poll(&poll, 1, 0) == 0;
}

namespace {

// What to answer where the kernel has given a sleeper without a set `count` events.
int AfterPlain(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask, int count) {
  if (count < 0 || !HaveEpollSets()) return count;
  // The set may have come while this thread slept: what it wakes the thread with is no event of the application's.
  if (count > 0 && (!DropCookies(epfd, events, &count) || count > 0)) return count;
  const EpollSetRef set = FindEpollSet(epfd);
  return set ? set->Wait(epfd, events, max_events, deadline, mask) : 0;
}

int WaitPlain(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask) {
  int count = 0;
  {
    const PlainSleep sleep(epfd);
    timespec storage;
    // A set that has come before this thread was counted would not wake it.
    const bool set_came = static_cast<bool>(FindEpollSet(epfd));
    if (!set_came) count = WaitForEpoll(epfd, events, max_events, Remaining(deadline, &storage), mask);
  }
  return AfterPlain(epfd, events, max_events, deadline, mask, count);
}

int WaitUntil(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask) {
  for (;;) {
    const EpollSetRef set = FindEpollSet(epfd);
    const int count = set ? set->Wait(epfd, events, max_events, deadline, mask) : WaitPlain(epfd, events, max_events, deadline, mask);
    const int kept = DropIdleNested(epfd, events, count);
    if (kept == count || kept > 0 || Now() >= deadline) return kept;
  }
}

}  // namespace

int EpollWait(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask) {
  constexpr int kMost = INT_MAX / static_cast<int>(sizeof(epoll_event));
  if (max_events <= 0 || max_events > kMost) return kPass;
  return WaitUntil(epfd, events, max_events, DeadlineAfter(timeout), mask);
}

int EpollWaitBeforeSockets(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask,
                           int (*wait)(void* arguments), void* arguments) {
  const Time deadline = DeadlineAfter(timeout);
  int count;
  {
    const PlainSleep sleep(epfd);
    // A set that has come before this thread was counted would not wake it.
    count = HaveEpollSets() && FindEpollSet(epfd) ? 0 : wait(arguments);
  }
  const int result = AfterPlain(epfd, events, max_events, deadline, mask, count);
  const int kept = DropIdleNested(epfd, events, result);
  return kept == result || kept > 0 || Now() >= deadline ? kept : WaitUntil(epfd, events, max_events, deadline, mask);
}

bool HaveEpolls() { return EpollNumbers::Any(); }

void EpollCreated(int epfd) { EpollNumbers::Created(epfd); }

bool EpollKnows(int fd) { return EpollNumbers::GroupOf(fd) != 0 || (HaveEpollSets() && Known(fd)); }

void EpollForget(int fd) {
  ForgetNested(fd);
  EpollNumbers::Closed(fd);
  if (!HaveEpollSets()) return;
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  const auto gone = std::find_if(s.in_use.begin(), s.in_use.end(), [&](const auto& entry) { return entry.first == fd; });
  if (gone != s.in_use.end()) {
    EpollSet* const set = gone->second;
    s.in_use.erase(gone);
    by_fd.Find(fd)->store(nullptr, std::memory_order_seq_cst);
    numbers_in_use.store(static_cast<int>(s.in_use.size()));
    // A duplicated epoll descriptor lives on under its other numbers.
    const auto other = std::find_if(s.in_use.begin(), s.in_use.end(), [&](const auto& entry) { return entry.second == set; });
    if (other != s.in_use.end()) {
      set->SetNumber(other->first);
    } else {
      OpenSets(set->group()).fetch_sub(1);
      set->Close();
      s.retired.push_back(set);
    }
  }
  for (const auto& [number, set] : s.in_use) set->Forget(fd);
}

void EpollDuplicate(int old_fd, int new_fd) {
  EpollNumbers::Duplicated(old_fd, new_fd);
  if (!HaveEpollSets()) return;
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  const std::atomic<EpollSet*>* const slot = by_fd.Find(old_fd);
  if (EpollSet* const set = slot == nullptr ? nullptr : slot->load()) Enter(s, new_fd, set);
}

void LockEpollTableForFork() { sets().mutex.lock(); }

void LockEpollSetsForFork() {
  for (const auto& set : sets().all) set->LockForFork();
}

void DisownEpollSetsAfterFork() {
  PlainSleep::ForgetAll();
  for (const auto& set : sets().all) set->DisownAfterFork();
}

void UnlockReadinessAfterFork() {
  Sets& s = sets();
  for (const auto& set : s.all) set->UnlockAfterFork();
  s.mutex.unlock();
}

}  // namespace sdp::preload
