// Futexes, as the tests of sleeping threads look at them.
#ifndef SDP_TEST_SUPPORT_FUTEX_H_
#define SDP_TEST_SUPPORT_FUTEX_H_

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace sdp::test {

// Moves the threads that sleep on `from`, which is `value`, to `to`. Returns their number.
inline long MoveSleepers(const std::atomic<uint32_t>& from, uint32_t value, const std::atomic<uint32_t>& to) {
  return ::syscall(SYS_futex, &from, FUTEX_CMP_REQUEUE, 0, static_cast<long>(INT_MAX), &to, value);
}

// Returns once a thread sleeps on `word`, which is `value`.
inline void AwaitSleeper(const std::atomic<uint32_t>& word, uint32_t value) {
  while (MoveSleepers(word, value, word) == 0) std::this_thread::yield();
}

}  // namespace sdp::test

#endif  // SDP_TEST_SUPPORT_FUTEX_H_
