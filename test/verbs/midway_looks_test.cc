// How often a reader looks before it sleeps in the middle of a message.
#include "verbs/softiwarp/midway_looks.h"

#include <catch2/catch.hpp>

namespace sdp::iwarp {
namespace {

// Sleeps without a look before the next with.
uint32_t SleepsWithout(MidwayLooks* looks) {
  uint32_t sleeps = 0;
  while (looks->Next() == 0) ++sleeps;
  return sleeps;
}

}  // namespace

TEST_CASE("looks: as long as they find something, before each sleep") {
  MidwayLooks looks;
  for (int i = 0; i < 100; ++i) {
    CHECK(looks.Next() == MidwayLooks::kLooks);
    looks.Note(true);
  }
}

TEST_CASE("looks: in vain they become rare, and one that finds something brings them back") {
  MidwayLooks looks;
  CHECK(SleepsWithout(&looks) == 0);
  for (const uint32_t without : {1u, 3u, 7u, 15u, 31u, 63u, 127u, 255u, 255u}) {
    looks.Note(false);
    CHECK(SleepsWithout(&looks) == without);
  }
  looks.Note(true);
  CHECK(SleepsWithout(&looks) == 0);
  looks.Note(false);
  CHECK(SleepsWithout(&looks) == 1);
}

}  // namespace sdp::iwarp
