// epoll_ctl and epoll_wait: which epoll descriptors have an EpollSet.
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

#include "preload/descriptor_array.h"
#include "preload/fd_table.h"
#include "preload/readiness/epoll_set.h"
#include "preload/readiness/fork.h"
#include "preload/readiness/nested.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

constexpr int kPass = static_cast<int>(kPassThrough);

DescriptorArray<EpollSet*> by_fd;
std::atomic<int> numbers_in_use{0};

// Changes of by_fd, and every set there ever was.
struct Sets {
  std::mutex mutex;
  std::vector<std::unique_ptr<EpollSet>> all;
  std::vector<EpollSet*> retired;      // may be opened again
  std::vector<std::pair<int, EpollSet*>> in_use;  // what by_fd says, to walk through
};
Sets& sets() {
  static Sets* const instance = new Sets;
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

// The set of `epfd`, made if there is none. Empty with errno if it cannot be made.
EpollSetRef FindOrOpen(int epfd) {
  Sets& s = sets();
  {
    std::lock_guard lock(s.mutex);
    const std::atomic<EpollSet*>* const slot = by_fd.Find(epfd);
    if (slot == nullptr || slot->load() == nullptr) {
      EpollSet* const set = Unused(s);
      if (!set->Open(epfd)) {
        s.retired.push_back(set);
        return {};
      }
      Enter(s, epfd, set);
    }
  }
  return EpollSetRef::Find(epfd);
}

}  // namespace

bool HaveEpollSets() { return numbers_in_use.load(std::memory_order_relaxed) != 0; }

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

int EpollCtl(int epfd, int operation, int fd, epoll_event* event) {
  // A socket that was registered as ours and fell back since is the kernel's now, as is everything else.
  if (!FdTable::Has(fd)) return kPass;
  EpollSetRef set = EpollSetRef::Find(epfd);
  if (!set) {
    if (operation != EPOLL_CTL_ADD) return kPass;
    set = FindOrOpen(epfd);
    if (!set) return -1;
  }
  return set->Control(epfd, operation, fd, event);
}

int EpollWait(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask) {
  const EpollSetRef set = EpollSetRef::Find(epfd);
  if (!set || max_events <= 0 || events == nullptr) return kPass;
  return set->Wait(epfd, events, max_events, DeadlineAfter(timeout), mask);
}

void EpollForget(int fd) {
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
    const bool last = std::none_of(s.in_use.begin(), s.in_use.end(), [&](const auto& entry) { return entry.second == set; });
    if (last) {
      set->Close();
      s.retired.push_back(set);
    }
  }
  for (const auto& [number, set] : s.in_use) set->Forget(fd);
}

void EpollDuplicate(int old_fd, int new_fd) {
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

void UnlockReadinessAfterFork() {
  Sets& s = sets();
  for (const auto& set : s.all) set->UnlockAfterFork();
  s.mutex.unlock();
}

}  // namespace sdp::preload
