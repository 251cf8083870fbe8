// A thread's sleep by futexes, and what ends it.
#include "preload/socket/waiter.h"

#include <pthread.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "test/support/futex.h"
#include "test/support/in_child.h"

namespace sdp::preload {
namespace {

constexpr uint32_t kUnrung = 7;

// A thread that sleeps for `word`. Its waiter stays as long as the object.
struct Sleeper {
  std::atomic<uint32_t> word{kUnrung};
  Waiter* waiter = nullptr;

  Sleeper() { waiter = begun_.get_future().get(); }
  ~Sleeper() {
    may_end_.set_value();
    thread_.join();
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  // Returns how the sleep has ended.
  int Result() { return result_.get_future().get(); }

 private:
  std::promise<Waiter*> begun_;
  std::promise<int> result_;
  std::promise<void> may_end_;
  std::thread thread_{[this] {
    Waiter* const own = Waiter::ForThisThread();
    own->BeginFutex();
    begun_.set_value(own);
    const int error = own->SleepAt({.word = &word, .unrung = kUnrung});
    own->EndFutex();
    result_.set_value(error);
    may_end_.get_future().wait();
  }};
};

TEST_CASE("waiter: the bell's futex ends its sleep, and so does another thread, also before it begins") {
  Sleeper rung;
  rung.word = kUnrung + 1;
  ::syscall(SYS_futex, &rung.word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  CHECK(rung.Result() == 0);
  Sleeper woken;
  woken.waiter->Wake();
  CHECK(woken.Result() == 0);
  Waiter* const own = Waiter::ForThisThread();
  REQUIRE(own != nullptr);
  const std::atomic<uint32_t> word{kUnrung};
  own->BeginFutex();
  own->Wake();
  CHECK(own->SleepAt({.word = &word, .unrung = kUnrung}) == 0);
  own->EndFutex();
}

TEST_CASE("waiter: a peer that moves the sleeper to a futex of its own does not keep it from being woken") {
  Sleeper sleeper;
  const std::atomic<uint32_t> of_peer{0};
  while (test::MoveSleepers(sleeper.word, kUnrung, of_peer) != 1) std::this_thread::yield();
  sleeper.waiter->Wake();
  CHECK(sleeper.Result() == 0);
}

TEST_CASE("waiter: a cancellation ends the sleep, and unwinds the thread") {
  struct Unwound {
    std::atomic<bool>& flag;
    ~Unwound() { flag = true; }
  };
  static std::atomic<uint32_t> word{kUnrung};
  static std::atomic<bool> unwound{false};
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, nullptr,
              [](void*) -> void* {
                const Unwound here{unwound};
                Waiter* const own = Waiter::ForThisThread();
                own->BeginFutex();
                own->SleepAt({.word = &word, .unrung = kUnrung});
                return nullptr;
              },
              nullptr) == 0);
  test::AwaitSleeper(word, kUnrung);
  REQUIRE(pthread_cancel(thread) == 0);
  void* result;
  REQUIRE(pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK(unwound);
}

TEST_CASE("waiter: a child of a fork in a handler does not go on sleeping") {
  Waiter* const own = Waiter::ForThisThread();
  REQUIRE(own != nullptr);
  const std::atomic<uint32_t> word{kUnrung};
  own->BeginFutex();
  CHECK(test::InChild([&] {
          Waiter::ForgetAfterFork();
          return own->SleepAt({.word = &word, .unrung = kUnrung});
        }) == 0);
  own->EndFutex();
}

}  // namespace
}  // namespace sdp::preload
