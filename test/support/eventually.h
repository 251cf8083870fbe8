// For what no descriptor tells: the condition is looked at again and again.
#ifndef SDP_TEST_SUPPORT_EVENTUALLY_H_
#define SDP_TEST_SUPPORT_EVENTUALLY_H_

#include <poll.h>

#include <chrono>
#include <functional>

namespace sdp::test {

// Returns whether it came true, within 10 s.
[[nodiscard]] inline bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

}  // namespace sdp::test

#endif  // SDP_TEST_SUPPORT_EVENTUALLY_H_
