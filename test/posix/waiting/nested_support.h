// Epoll sets whose entries carry their descriptors.
#ifndef SDP_TEST_POSIX_NESTED_SUPPORT_H_
#define SDP_TEST_POSIX_NESTED_SUPPORT_H_

#include <sys/epoll.h>

#include "test/posix/support.h"

namespace posix_test {

inline Fd Set() {
  Fd set(epoll_create1(EPOLL_CLOEXEC));
  REQUIRE(set >= 0);
  return set;
}

inline int Control(int set, int operation, int fd, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return epoll_ctl(set, operation, fd, &event);
}

inline void Add(int set, int fd, uint32_t events) { REQUIRE(Control(set, EPOLL_CTL_ADD, fd, events) == 0); }

// The descriptor one wait reports; -1: none.
inline int WaitOne(int set, int timeout_ms = kPatienceMs) {
  epoll_event event{};
  return epoll_wait(set, &event, 1, timeout_ms) == 1 ? event.data.fd : -1;
}

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_NESTED_SUPPORT_H_
