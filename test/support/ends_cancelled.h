// A thread that may be cancelled, and whether it was.
#ifndef SDP_TEST_SUPPORT_ENDS_CANCELLED_H_
#define SDP_TEST_SUPPORT_ENDS_CANCELLED_H_

#include <pthread.h>

#include <catch2/catch.hpp>
#include <functional>

namespace sdp::test {

// Whether a cancellation ended the thread that ran `body`.
inline bool EndsCancelled(const std::function<void()>& body) {
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, nullptr, run, const_cast<std::function<void()>*>(&body)) == 0);
  void* result = nullptr;
  REQUIRE(pthread_join(thread, &result) == 0);
  return result == PTHREAD_CANCELED;
}

}  // namespace sdp::test

#endif  // SDP_TEST_SUPPORT_ENDS_CANCELLED_H_
