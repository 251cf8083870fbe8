// epoll_ctl and epoll_wait: which epoll descriptors have an EpollSet.
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <unordered_map>

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

struct Sets {
  std::mutex mutex;
  std::unordered_map<int, std::shared_ptr<EpollSet>> by_fd;
  std::atomic<size_t> count{0};
};
Sets& sets() {
  static Sets* const instance = new Sets;
  return *instance;
}

}  // namespace

std::shared_ptr<EpollSet> FindEpollSet(int epfd) {
  Sets& s = sets();
  if (s.count.load(std::memory_order_acquire) == 0) return nullptr;
  std::lock_guard lock(s.mutex);
  const auto it = s.by_fd.find(epfd);
  return it == s.by_fd.end() ? nullptr : it->second;
}

bool HaveEpollSets() { return sets().count.load(std::memory_order_acquire) != 0; }

int EpollCtl(int epfd, int operation, int fd, epoll_event* event) {
  const bool managed = FdTable::Has(fd);
  std::shared_ptr<EpollSet> set = FindEpollSet(epfd);
  if (!managed) {
    // A socket that was registered as ours and fell back since is the kernel's now, and so is everything else.
    return kPass;
  }
  if (set == nullptr) {
    if (operation != EPOLL_CTL_ADD) return kPass;
    Sets& s = sets();
    std::lock_guard lock(s.mutex);
    std::shared_ptr<EpollSet>& slot = s.by_fd[epfd];
    if (slot == nullptr) slot = EpollSet::Open(epfd);
    if (slot == nullptr) {
      const int error = errno;
      s.by_fd.erase(epfd);
      errno = error;
      return -1;
    }
    s.count.store(s.by_fd.size(), std::memory_order_release);
    set = slot;
  }
  return set->Control(epfd, operation, fd, event);
}

int EpollWait(int epfd, epoll_event* events, int max_events, const timespec* timeout, const sigset_t* mask) {
  const std::shared_ptr<EpollSet> set = FindEpollSet(epfd);
  if (set == nullptr || max_events <= 0 || events == nullptr) return kPass;
  return set->Wait(epfd, events, max_events, DeadlineAfter(timeout), mask);
}

void EpollForget(int fd) {
  Sets& s = sets();
  if (s.count.load(std::memory_order_acquire) == 0) return;
  std::shared_ptr<EpollSet> gone;
  std::vector<std::shared_ptr<EpollSet>> others;
  {
    std::lock_guard lock(s.mutex);
    if (const auto it = s.by_fd.find(fd); it != s.by_fd.end()) {
      gone = std::move(it->second);
      s.by_fd.erase(it);
      s.count.store(s.by_fd.size(), std::memory_order_release);
    }
    for (const auto& [number, set] : s.by_fd) others.push_back(set);
  }
  // One number of a duplicated epoll descriptor: the set lives on.
  for (const auto& set : others) {
    if (set == gone) gone = nullptr;
    set->Forget(fd);
  }
  if (gone != nullptr) gone->Close();
}

void EpollDuplicate(int old_fd, int new_fd) {
  const std::shared_ptr<EpollSet> set = FindEpollSet(old_fd);
  if (set == nullptr) return;
  Sets& s = sets();
  std::lock_guard lock(s.mutex);
  s.by_fd[new_fd] = set;
  s.count.store(s.by_fd.size(), std::memory_order_release);
}

void LockReadinessForFork() {
  Sets& s = sets();
  s.mutex.lock();
  for (const auto& [fd, set] : s.by_fd) set->LockForFork();
}

void UnlockReadinessAfterFork() {
  Sets& s = sets();
  for (const auto& [fd, set] : s.by_fd) set->UnlockAfterFork();
  s.mutex.unlock();
}

}  // namespace sdp::preload
