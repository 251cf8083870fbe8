// Epoll sets inside others, and in poll and select.
#ifndef SDP_PRELOAD_READINESS_NESTED_H_
#define SDP_PRELOAD_READINESS_NESTED_H_

#include <atomic>
#include <utility>

#include "preload/readiness/epoll_set.h"

namespace sdp::preload {

// The EpollSet of an epoll descriptor while a call works with it. Sets are never freed, only used again once
// nobody is in a call on them, so that finding one takes no lock.
class EpollSetRef {
 public:
  EpollSetRef() = default;
  static EpollSetRef Find(int epfd);
  EpollSetRef(EpollSetRef&& other) noexcept : set_(std::exchange(other.set_, nullptr)) {}
  EpollSetRef& operator=(EpollSetRef&& other) noexcept {
    std::swap(set_, other.set_);
    return *this;
  }
  ~EpollSetRef() {
    if (set_ != nullptr) set_->users.fetch_sub(1, std::memory_order_release);
  }
  explicit operator bool() const { return set_ != nullptr; }
  EpollSet* operator->() const { return set_; }

 private:
  EpollSet* set_ = nullptr;
};

bool HaveEpollSets();
// As EpollSetRef::Find; a duplicate from before its descriptor had a set is recognized.
EpollSetRef FindEpollSet(int epfd);

// `epfd`, or a duplicate, has a set in which an SDP socket has this data.
bool AnEpollSetHasData(int epfd, uint64_t data);

// For poll, select and epoll on an epoll descriptor that the kernel calls readable: it has a set, or others
// in it, and neither those nor the kernel have anything to report (any more).
bool NestedIsIdle(int epfd);

// Which epoll descriptors the program has put into others, be there SDP sockets in them or not. Its lock is
// ahead of all of theirs.
class Nestings {
 public:
  // `fd` is about to be put into the epoll set `epfd`, changed there or taken out.
  static void Note(int epfd, int operation, int fd, const epoll_event* event);
  // The number `fd` is about to be closed.
  static void Forget(int fd);
  static bool HaveInside(int epfd);
  // Takes out of the `count` events that the kernel reported of `epfd` the inner sets that have nothing to
  // report: they were woken for bytes of a link, or for what has been read since. The new count; up to
  // `max_events` may have come meanwhile.
  static int Settle(int epfd, epoll_event* events, int count, int max_events);
  static void LockForFork();
  static void UnlockAfterFork();
};

// One wait that does not sleep, nested sets as the kernel reports them.
int EpollWaitAtOnce(int epfd, epoll_event* events, int max_events);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_NESTED_H_
