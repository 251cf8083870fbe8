// Sends whose bytes stay until the peer has them.
#include "verbs/ibv/kept_sends.h"

#include <catch2/catch.hpp>

#include "verbs/ibv/ring_space.h"

namespace sdp::ibv {
namespace {

TEST_CASE("Kept Sends: room comes back when the peer has them, and not before") {
  KeptSends kept(1000);
  REQUIRE(kept.Keep(400) == 0);
  REQUIRE(kept.Keep(400) == 400);
  CHECK_FALSE(kept.Keep(300));
  kept.NotePeerHas(2, 0);
  CHECK_FALSE(kept.Keep(300));
  kept.NotePeerHas(1, 0);
  CHECK(kept.Keep(300) == 0);
  CHECK_FALSE(kept.Keep(300));
  kept.NotePeerHas(0, 0);
  CHECK(kept.empty());
  CHECK(kept.Keep(500) == 0);
}

TEST_CASE("Kept Sends: those that went the other way, or wait, are counted") {
  KeptSends kept(1000);
  kept.CountOther();
  REQUIRE(kept.Keep(500) == 0);  // the second
  kept.CountOther();
  REQUIRE(kept.Keep(500) == 500);  // the fourth
  SECTION("the peer has the first only") {
    kept.NotePeerHas(3, 0);
    CHECK_FALSE(kept.Keep(500));
  }
  SECTION("the first only, and two more wait") {
    kept.NotePeerHas(5, 2);
    CHECK_FALSE(kept.Keep(500));
  }
  SECTION("more are missing than there are") {
    kept.NotePeerHas(UINT64_MAX, 2);
    CHECK_FALSE(kept.Keep(500));
  }
  SECTION("the first two") {
    kept.NotePeerHas(2, 0);
    CHECK(kept.Keep(500) == 0);
    CHECK_FALSE(kept.Keep(1));
  }
  SECTION("the first two, and two more wait") {
    kept.NotePeerHas(4, 2);
    CHECK(kept.Keep(500) == 0);
    CHECK_FALSE(kept.Keep(1));
  }
}

TEST_CASE("A ring's mark of before it was idle does not take room away again") {
  RingSpace ring(1000);
  REQUIRE(ring.Take(100) == 0);
  ring.FreeUpTo(ring.mark());
  const uint64_t old = ring.mark();  // as a Send has it whose bytes are elsewhere
  REQUIRE(ring.Take(100) == 0);
  ring.FreeUpTo(old);
  CHECK(ring.Take(400) == 100);
}

}  // namespace
}  // namespace sdp::ibv
