#include "verbs/softiwarp/proto/stag_table.h"

#include <array>
#include <catch2/catch.hpp>
#include <set>

namespace sdp::iwarp::test {
namespace {

int draws = 0;

void Count(MutableBytes out) {
  ++draws;
  static uint8_t next = 0;
  for (std::byte& b : out) b = static_cast<std::byte>(++next * 37);
}

}  // namespace

TEST_CASE(
    "stag table: regions that come and go get names of their own, and random bits are drawn for many at "
    "once") {
  StagTable table(Count);
  std::array<std::byte, 8> memory;
  std::set<uint32_t> names;
  draws = 0;
  for (int i = 0; i < 64; ++i) {
    const auto stag = table.Register(memory, Rights::kRemoteRead);
    REQUIRE(stag);
    CHECK(names.insert(stag->value()).second);
    CHECK(table.Deregister(*stag));
    CHECK_FALSE(table.Contains(*stag));
  }
  CHECK(draws > 1);  // not the same bits again
  CHECK(draws <= 8);
}

}  // namespace sdp::iwarp::test
