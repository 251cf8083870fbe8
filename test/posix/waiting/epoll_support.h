// An epoll descriptor for the cases that use one.
#ifndef SDP_TEST_POSIX_EPOLL_SUPPORT_H_
#define SDP_TEST_POSIX_EPOLL_SUPPORT_H_

#include <sys/epoll.h>

#include <map>

#include "test/posix/support.h"

namespace posix_test {

class Epoll {
 public:
  Epoll() : fd_(epoll_create1(EPOLL_CLOEXEC)) { REQUIRE(fd_ >= 0); }
  int Control(int operation, int fd, uint32_t events, uint64_t data) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return epoll_ctl(fd_, operation, fd, &event);
  }
  void Add(int fd, uint32_t events, uint64_t data) { REQUIRE(Control(EPOLL_CTL_ADD, fd, events, data) == 0); }
  void Mod(int fd, uint32_t events, uint64_t data) { REQUIRE(Control(EPOLL_CTL_MOD, fd, events, data) == 0); }
  void Del(int fd) { REQUIRE(epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr) == 0); }
  // data -> events of one wait.
  std::map<uint64_t, uint32_t> Wait(int timeout_ms = kPatienceMs) {
    epoll_event events[64];
    const int n = epoll_wait(fd_, events, 64, timeout_ms);
    std::map<uint64_t, uint32_t> result;
    for (int i = 0; i < n; ++i) result[events[i].data.u64] |= events[i].events;
    return result;
  }
  bool Quiet(int ms = kQuietMs) { return Wait(ms).empty(); }
  int fd() const { return fd_; }

 private:
  Fd fd_;
};

using Events = std::map<uint64_t, uint32_t>;

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_EPOLL_SUPPORT_H_
