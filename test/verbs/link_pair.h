// Connected loopback sockets, for tests and benchmarks of what runs over TCP.
#ifndef SDP_TEST_VERBS_LINK_PAIR_H_
#define SDP_TEST_VERBS_LINK_PAIR_H_

#include <array>
#include <utility>

#include "core/base/types.h"

namespace sdp::iwarp::test {

// Owns a descriptor.
struct Fd {
  int value = -1;
  Fd() = default;
  explicit Fd(int fd) : value(fd) {}
  Fd(Fd&& other) noexcept : value(std::exchange(other.value, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  void Close();
};

// [0] connected, [1] was accepted. Aborts the program when the system refuses.
std::array<Fd, 2> LoopbackPair(bool blocking = false);

// Monotonic.
Time Now();

}  // namespace sdp::iwarp::test

#endif  // SDP_TEST_VERBS_LINK_PAIR_H_
