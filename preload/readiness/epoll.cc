// epoll_ctl and epoll_wait. Keeps the table of which epoll descriptors have an EpollSet.
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "preload/critical.h"
#include "preload/descriptor_array.h"
#include "preload/fail.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/lasting.h"
#include "preload/link_calls.h"
#include "preload/readiness/epoll_set.h"
#include "preload/readiness/nested.h"
#include "preload/readiness/plain_sleep.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/spare_descriptors.h"

namespace sdp::preload {
namespace {

constexpr int kPass = static_cast<int>(kPassThrough);

DescriptorArray<EpollSet*> by_fd;

std::atomic<int> numbers_in_use{0};
// The number of open sets, counted by the group of their descriptor (roughly).
std::array<std::atomic<int>, 64> open_sets;
std::atomic<int>& OpenSets(uint32_t group) { return open_sets[group % open_sets.size()]; }

// The table's lock is taken for changes of by_fd; the table owns every set there ever was.
struct Sets {
  Mutex mutex;
  std::vector<std::unique_ptr<EpollSet>> all;
  std::vector<EpollSet*> retired;                 // may be opened again
  std::vector<std::pair<int, EpollSet*>> in_use;  // the entries of by_fd, to walk through
};
Sets& sets() { return Lasting<Sets>(); }

// The caller holds the lock.
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

// The caller holds the lock. An unknown number may be a duplicate of a known one, made before that one had a
// set.
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

// Returns the set of `epfd`. For EPOLL_CTL_ADD makes one if there is none. Returns nothing, with errno, if
// that fails.
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
    }
  }
  EpollSetRef found = EpollSetRef::Find(epfd);
  if (found && Nestings::HaveInside(epfd)) found->SetNested();
  return found;
}

// Removes the library's own events from those that the kernel reported, and notes whose they are. Returns
// false if there were none.
bool DropCookies(int epfd, epoll_event* events, int* count) {
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  auto is_cookie = [&](const epoll_event& event) {
    return std::any_of(s.all.begin(), s.all.end(),
                       [&](const auto& set) { return set->Cookie() == event.data.u64; });
  };
  int kept = static_cast<int>(std::remove_if(events, events + *count, is_cookie) - events);
  for (const auto& set : s.all) kept = set->MergeListeners(events, 0, kept);
  if (kept == *count) return false;
  if (!Known(epfd)) FindDuplicate(s, epfd);
  *count = kept;
  return true;
}

}  // namespace

// Sequentially consistent with the count of sleepers (plain_sleep.h).
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
  const bool duplicate = std::any_of(s.in_use.begin(), s.in_use.end(),
                                     [&](const auto& entry) { return entry.second->group() == group; });
  return duplicate && (Known(epfd) || FindDuplicate(s, epfd)) ? EpollSetRef::Find(epfd) : EpollSetRef();
}

bool AnEpollSetHasData(int epfd, uint64_t data) {
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  return std::any_of(s.in_use.begin(), s.in_use.end(), [&](const auto& entry) {
    return EpollNumbers::AreDuplicates(entry.first, epfd) && entry.second->HasData(data);
  });
}

int EpollCtl(int epfd, int operation, int fd, epoll_event* event) {
  // A socket that was registered as managed and has fallen back since belongs to the kernel, as everything
  // else does.
  Nestings::Note(epfd, operation, fd, event);
  if (!FdTable::Has(fd)) return kPass;
  EpollSetRef set = EpollSetRef::Find(epfd);
  if (!set) {
    set = FindOrOpen(epfd, operation);
    if (!set) return operation == EPOLL_CTL_ADD ? -1 : kPass;
  }
  return set->Control(epfd, operation, fd, event);
}

namespace {

// `wait` makes the system call, for which this thread has no set yet.
int WaitPlain(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask,
              absl::FunctionRef<int()> wait) {
  int count = 0;
  {
    const PlainSleep sleep(epfd);
    // A set that came before this thread was counted would not wake it.
    const bool set_came = static_cast<bool>(FindEpollSet(epfd));
    if (!set_came) count = wait();
  }
  if (count < 0 || !HaveEpollSets()) return count;
  // The set may have come while this thread slept. The event by which the set wakes the thread is not the
  // application's.
  if (count > 0 && (!DropCookies(epfd, events, &count) || count > 0)) return count;
  const EpollSetRef set = FindEpollSet(epfd);
  return set ? set->Wait(epfd, events, max_events, deadline, mask) : 0;
}

int WaitUntil(int epfd, epoll_event* events, int max_events, Time deadline, const sigset_t* mask) {
  const auto wait = [&] {
    timespec storage;
    return WaitForEpoll(epfd, events, max_events, Remaining(deadline, &storage), mask);
  };
  for (;;) {
    const EpollSetRef set = FindEpollSet(epfd);
    const int count = set ? set->Wait(epfd, events, max_events, deadline, mask)
                          : WaitPlain(epfd, events, max_events, deadline, mask, wait);
    const int kept = Nestings::Settle(epfd, events, count, max_events);
    if (kept == count || kept > 0 || Now() >= deadline) return kept;
  }
}

}  // namespace

int EpollWaitAtOnce(int epfd, epoll_event* events, int max_events) {
  constexpr timespec kAtOnce{};
  const KeepErrno keep;
  const EpollSetRef set = FindEpollSet(epfd);
  return set ? set->Wait(epfd, events, max_events, Time{}, nullptr)
             : WaitForEpoll(epfd, events, max_events, &kAtOnce, nullptr);
}

int EpollWait(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask) {
  constexpr int kMost = INT_MAX / static_cast<int>(sizeof(epoll_event));
  if (max_events <= 0 || max_events > kMost) return kPass;
  return WaitUntil(epfd, events, max_events, DeadlineAfter(timeout), mask);
}

int EpollWaitBeforeSockets(int epfd, epoll_event* events, int max_events, const timespec* timeout,
                           const sigset_t* mask, absl::FunctionRef<int()> wait) {
  const Time deadline = DeadlineAfter(timeout);
  const int result = WaitPlain(epfd, events, max_events, deadline, mask, wait);
  const int kept = Nestings::Settle(epfd, events, result, max_events);
  return kept == result || kept > 0 || Now() >= deadline
             ? kept
             : WaitUntil(epfd, events, max_events, deadline, mask);
}

bool HaveEpolls() { return EpollNumbers::Any(); }

void EpollCreated(int epfd) {
  EpollNumbers::Created(epfd);
  if (epfd >= 0) SpareDescriptors::NoteEpoll();
}

bool EpollKnows(int fd) { return EpollNumbers::GroupOf(fd) != 0 || (HaveEpollSets() && Known(fd)); }

void EpollForget(int fd) {
  Nestings::Forget(fd);
  EpollNumbers::Closed(fd);
  if (!HaveEpollSets()) return;
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  const auto gone =
      std::find_if(s.in_use.begin(), s.in_use.end(), [&](const auto& entry) { return entry.first == fd; });
  if (gone != s.in_use.end()) {
    EpollSet* const set = gone->second;
    s.in_use.erase(gone);
    by_fd.Find(fd)->store(nullptr, std::memory_order_seq_cst);
    numbers_in_use.store(static_cast<int>(s.in_use.size()));
    // A duplicated epoll descriptor remains open under its other numbers.
    const auto other = std::find_if(s.in_use.begin(), s.in_use.end(),
                                    [&](const auto& entry) { return entry.second == set; });
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

void LockEpollTableForFork() {
  Nestings::LockForFork();
  sets().mutex.lock();
}

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
  Nestings::UnlockAfterFork();
}

}  // namespace sdp::preload
