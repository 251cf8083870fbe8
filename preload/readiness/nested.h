// Epoll sets inside other epoll sets, and epoll sets in poll and select.
#ifndef SDP_PRELOAD_READINESS_NESTED_H_
#define SDP_PRELOAD_READINESS_NESTED_H_

#include <atomic>
#include <utility>

#include "preload/readiness/epoll_set.h"

namespace sdp::preload {

// Holds the EpollSet of an epoll descriptor during a call. Sets are never freed. A closed set is used again
// only once no thread is in a call on it, so finding a set takes no lock.
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
// Like EpollSetRef::Find, but also recognizes a duplicate that was made before its descriptor had a set.
EpollSetRef FindEpollSet(int epfd);

// Returns whether `epfd`, or a duplicate of it, has a set in which an SDP socket is registered with this
// data.
bool AnEpollSetHasData(int epfd, uint64_t data);

// For poll, select and epoll, when the kernel calls an epoll descriptor readable. Returns true if the
// descriptor has a set or contains other sets, and neither they nor the kernel have anything (left) to
// report.
bool NestedIsIdle(int epfd);

// The table of epoll descriptors that the program has put into others, with or without SDP sockets in them.
// Its lock comes before those of all epoll sets.
class Nestings {
 public:
  // The program is about to put `fd` into the epoll set `epfd`, change it there or take it out.
  static void Note(int epfd, int operation, int fd, const epoll_event* event);
  // The number `fd` is about to be closed.
  static void Forget(int fd);
  static bool HaveInside(int epfd);
  // Removes inner sets without anything to report from the `count` events that the kernel gave for `epfd`.
  // Such a set woke for bytes of a link, or for data that a thread has read since. Returns the new count;
  // meanwhile up to `max_events` may have come.
  static int Settle(int epfd, epoll_event* events, int count, int max_events);
  static void LockForFork();
  static void UnlockAfterFork();
};

// Waits once without sleeping. Nested sets are reported as the kernel reports them.
int EpollWaitAtOnce(int epfd, epoll_event* events, int max_events);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_NESTED_H_
