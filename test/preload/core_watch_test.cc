#include "preload/socket/core_watch.h"

#include <sched.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace sdp::preload {
namespace {

// All threads begun meanwhile are on one processor.
class OneProcessor {
 public:
  OneProcessor() {
    REQUIRE(::sched_getaffinity(0, sizeof before_, &before_) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    }
    REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OneProcessor() { ::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST_CASE("A thread that wants the core is seen when the core is offered") {
  const OneProcessor here;
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
    }
  });
  CoreWatch watch;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool taken = false;
  while (!taken && std::chrono::steady_clock::now() < end) taken = watch.OfferedAndTaken();
  over = true;
  other.join();
  CHECK(taken);
}

}  // namespace
}  // namespace sdp::preload
