#include "preload/socket/connection_race.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

using namespace std::chrono_literals;
using Way = ConnectionRace::Way;

constexpr Time kStart = Time(1h);

ConnectionRace Begun(Duration budget = 50ms) {
  ConnectionRace race;
  race.Begin(kStart, budget);
  return race;
}

TEST_CASE("the budget is three round trips, from 50 to 300 ms", "[connection_race]") {
  CHECK(ConnectionRace::Budget({}, 0ms, 0ms) == 50ms);
  CHECK(ConnectionRace::Budget({}, 40ms, 0ms) == 120ms);
  CHECK(ConnectionRace::Budget({}, 200ms, 0ms) == 300ms);
  CHECK(ConnectionRace::Budget(2s, 40ms, 0ms) == 2s);
  CHECK(ConnectionRace::Budget(0ms, 40ms, 0ms) == 0ms);
}

TEST_CASE("the budget is never more than half of the program's time-out", "[connection_race]") {
  CHECK(ConnectionRace::Budget({}, 200ms, 100ms) == 50ms);
  CHECK(ConnectionRace::Budget({}, 0ms, 10ms) == 5ms);
  CHECK(ConnectionRace::Budget(2s, 0ms, 3s) == 1500ms);
  CHECK(ConnectionRace::Budget({}, 0ms, 1h) == 50ms);
}

TEST_CASE("an SDP port that answers in time is used, and no TCP is tried", "[connection_race]") {
  ConnectionRace race = Begun();
  CHECK(race.deadline() == kStart + 50ms);
  CHECK(race.Look(false, false, kStart + 49ms) == Way::kSdpAlone);
  CHECK(race.Look(true, false, kStart + 1h) == Way::kSdp);
}

TEST_CASE("behind the budget both ways are tried, and the first to answer is used", "[connection_race]") {
  ConnectionRace race = Begun();
  REQUIRE(race.Look(false, false, kStart + 50ms) == Way::kBoth);
  CHECK(race.deadline() == kNever);
  SECTION("TCP") {
    CHECK(race.Look(false, true, kStart + 60ms) == Way::kConventional);
    CHECK(race.Look(true, true, kStart + 61ms) == Way::kConventional);
  }
  SECTION("SDP") { CHECK(race.Look(true, false, kStart + 60ms) == Way::kSdp); }
  SECTION("TCP where both have: the server may have that connection already") {
    CHECK(race.Look(true, true, kStart + 60ms) == Way::kConventional);
  }
  SECTION("neither yet") { CHECK(race.Look(false, false, kStart + 1h) == Way::kBoth); }
}

TEST_CASE("an SDP port that falls silent behind a race it has won is not waited for again",
          "[connection_race]") {
  ConnectionRace race = Begun();
  race.Look(false, false, kStart + 50ms);
  REQUIRE(race.Look(true, false, kStart + 60ms) == Way::kSdp);
  race.Begin(kStart + 60ms, 50ms);
  CHECK(race.Look(false, false, kStart + 109ms) == Way::kSdpAlone);
  CHECK(race.Look(false, false, kStart + 110ms) == Way::kConventional);
}

TEST_CASE("no budget at all: both ways at once, and an endless one is no overflow", "[connection_race]") {
  ConnectionRace race = Begun(0ms);
  CHECK(race.Look(false, false, kStart) == Way::kBoth);
  CHECK(Begun(Duration::max()).deadline() == kNever);
}

}  // namespace
}  // namespace sdp::preload
