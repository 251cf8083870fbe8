#include "portmapper/engine/alarm.h"

#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using test::Ms;

TEST_CASE("an alarm says at once that it begins, and counts what follows once a minute", "[alarm]") {
  Alarm alarm;
  CHECK_FALSE(alarm.HandleCount(0, Ms(1)));
  CHECK(alarm.NextTimeout() == kNever);

  const auto first = alarm.HandleCount(1, Ms(10));
  REQUIRE(first);
  CHECK(first->begins);
  CHECK(first->since == 1);
  CHECK(alarm.NextTimeout() == kNever);

  CHECK_FALSE(alarm.HandleCount(5000, Ms(20)));
  CHECK(alarm.NextTimeout() == Ms(60'010));
  CHECK_FALSE(alarm.HandleCount(70'000, Ms(60'009)));
  const auto second = alarm.HandleCount(70'000, Ms(60'010));
  REQUIRE(second);
  CHECK_FALSE(second->begins);
  CHECK(second->since == 69'999);
  CHECK(alarm.NextTimeout() == kNever);

  SECTION("it goes on") {
    CHECK_FALSE(alarm.HandleCount(70'001, Ms(60'011)));
    CHECK(alarm.HandleCount(70'001, Ms(120'010))->since == 1);
  }
  SECTION("it ends: nothing more is said") {
    CHECK_FALSE(alarm.HandleCount(70'000, Ms(500'000)));
    CHECK(alarm.NextTimeout() == kNever);
  }
  SECTION("and begins again") {
    const auto again = alarm.HandleCount(70'002, Ms(500'000));
    REQUIRE(again);
    CHECK(again->begins);
    CHECK(again->since == 2);
  }
}

}  // namespace
}  // namespace sdp::pm
