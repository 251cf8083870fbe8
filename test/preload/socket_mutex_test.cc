// When a socket's express way is open.
#include "preload/socket/socket_mutex.h"

#include <catch2/catch.hpp>
#include <mutex>

namespace sdp::preload {
namespace {

bool IsOpen(SocketMutex& mutex) { return ExpressLock(mutex).taken(); }

TEST_CASE("express lock: it is taken as often as the one who opened the way has said") {
  SocketMutex mutex(nullptr);
  CHECK_FALSE(IsOpen(mutex));
  {
    const std::lock_guard lock(mutex);
    mutex.OpenExpress(2);
  }
  CHECK(IsOpen(mutex));
  CHECK(IsOpen(mutex));
  CHECK_FALSE(IsOpen(mutex));
}

TEST_CASE("express lock: every other owner of the lock closes the way") {
  SocketMutex mutex(nullptr);
  {
    const std::lock_guard lock(mutex);
    mutex.OpenExpress(100);
  }
  REQUIRE(IsOpen(mutex));
  SECTION("of the whole lock") { const std::lock_guard lock(mutex); }
  SECTION("of the whole lock, who tried") {
    REQUIRE(mutex.try_lock());
    mutex.unlock();
  }
  SECTION("of this process's part") { const std::lock_guard lock(mutex.own()); }
  SECTION("of this process's part, who tried") {
    REQUIRE(mutex.own().try_lock());
    mutex.own().unlock();
  }
  SECTION("on the express way, who says so") {
    ExpressLock lock(mutex);
    lock.Close();
  }
  CHECK_FALSE(IsOpen(mutex));
}

TEST_CASE("express lock: a way for leftovers is open to who can receive those") {
  SocketMutex mutex(nullptr);
  {
    const std::lock_guard lock(mutex);
    mutex.OpenExpress(2, Express::kLeftovers);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK_FALSE(IsOpen(mutex));
    const ExpressLock lock(mutex, Express::kLeftovers);
    REQUIRE(lock.taken());
    CHECK(lock.leftovers());
  }
  CHECK_FALSE(ExpressLock(mutex, Express::kLeftovers).taken());
  {
    const std::lock_guard lock(mutex);
    mutex.OpenExpress(2);
  }
  CHECK(IsOpen(mutex));
  const ExpressLock lock(mutex, Express::kLeftovers);
  CHECK(lock.taken());
  CHECK_FALSE(lock.leftovers());
}

TEST_CASE("express lock: it excludes the other owners") {
  SocketMutex mutex(nullptr);
  {
    const std::lock_guard lock(mutex);
    mutex.OpenExpress(100);
  }
  {
    const ExpressLock lock(mutex);
    REQUIRE(lock.taken());
    CHECK_FALSE(mutex.try_lock());
  }
  CHECK(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace sdp::preload
