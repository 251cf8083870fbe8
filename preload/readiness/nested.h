// For poll and select on an epoll descriptor that has an EpollSet.
#ifndef SDP_PRELOAD_READINESS_NESTED_H_
#define SDP_PRELOAD_READINESS_NESTED_H_

#include <atomic>
#include <utility>

#include "preload/readiness/epoll_set.h"

namespace sdp::preload {

// The EpollSet of an epoll descriptor while a call works with it. Sets are never freed, only used again once nobody is in a call on
// them, so that finding one takes no lock.
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

// For poll, select and epoll on an epoll descriptor that the kernel calls readable: it has a set, or others in it, and neither those nor the
// kernel have anything to report (any more).
bool NestedIsIdle(int epfd);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_NESTED_H_
