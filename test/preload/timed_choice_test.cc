// The choice of a way by trial.
#include "preload/socket/timed_choice.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

using Times = std::array<int, TimedChoice::kMostWays>;  // microseconds

// How often each way is used in so many uses.
Times Use(TimedChoice* choice, const Times& times, uint32_t uses) {
  Times used{};
  for (uint32_t i = 0; i < uses; ++i) {
    ++used[choice->way()];
    choice->Took(std::chrono::microseconds(times[choice->way()]));
  }
  return used;
}
constexpr uint32_t kTrials = 3 * TimedChoice::kTrial;
constexpr uint8_t kAll = 7;

}  // namespace

TEST_CASE("timed choice: the fastest is kept, whichever it is") {
  for (const Times& times : {Times{100, 110, 120}, Times{110, 100, 120}, Times{120, 110, 100}}) {
    TimedChoice choice;
    choice.Begin(kAll, 1);
    CHECK(Use(&choice, times, TimedChoice::kWarmUp) == Times{0, TimedChoice::kWarmUp, 0});
    CHECK(choice.trying());
    CHECK(Use(&choice, times, kTrials) == Times{TimedChoice::kTrial, TimedChoice::kTrial, TimedChoice::kTrial});
    CHECK_FALSE(choice.trying());
    const uint8_t fastest = choice.way();
    CHECK(times[fastest] == 100);
    CHECK(Use(&choice, times, TimedChoice::kShortestStay)[fastest] == TimedChoice::kShortestStay);
    CHECK(choice.trying());
  }
}

TEST_CASE("timed choice: ways that are not asked for are not tried") {
  TimedChoice choice;
  choice.Begin(5, 0);
  CHECK(Use(&choice, {100, 1, 90}, 1000)[1] == 0);
  CHECK(choice.way() == 2);
}

TEST_CASE("timed choice: a way that stays the fastest is kept for longer and longer") {
  TimedChoice choice;
  choice.Begin(kAll, 0);
  const Times times{100, 110, 90};
  Use(&choice, times, TimedChoice::kWarmUp + kTrials);
  for (uint32_t stay = TimedChoice::kShortestStay; stay <= TimedChoice::kLongestStay; stay *= 2) {
    Use(&choice, times, stay - 1);
    REQUIRE_FALSE(choice.trying());
    Use(&choice, times, 1);
    REQUIRE(choice.trying());
    Use(&choice, times, kTrials);
    REQUIRE_FALSE(choice.trying());
  }
  Use(&choice, times, TimedChoice::kLongestStay);
  CHECK(choice.trying());
}

TEST_CASE("timed choice: another that has become faster is found, and what is hardly faster is no reason to change") {
  TimedChoice choice;
  choice.Begin(kAll, 0);
  Use(&choice, {100, 110, 120}, TimedChoice::kWarmUp + kTrials);
  REQUIRE(choice.way() == 0);
  Use(&choice, {100, 98, 120}, TimedChoice::kShortestStay + kTrials);
  REQUIRE_FALSE(choice.trying());
  CHECK(choice.way() == 0);
  Use(&choice, {100, 95, 90}, 2 * TimedChoice::kShortestStay + kTrials);
  REQUIRE_FALSE(choice.trying());
  CHECK(choice.way() == 2);
  Use(&choice, {100, 95, 90}, TimedChoice::kShortestStay);  // the first stay of the new one
  CHECK(choice.trying());
}

TEST_CASE("timed choice: first uses and outliers do not count") {
  TimedChoice choice;
  choice.Begin(3, 0);
  Use(&choice, {100, 100, 0}, TimedChoice::kWarmUp);
  for (int way = 0; way < 2; ++way) {
    REQUIRE(choice.way() == way);
    Use(&choice, {2'500, 2'500, 0}, TimedChoice::kUncounted);
    Use(&choice, {2'000, 2'000, 0}, 2);
    Use(&choice, {100, 90, 0}, TimedChoice::kTrial - TimedChoice::kUncounted - 2);
  }
  CHECK_FALSE(choice.trying());
  CHECK(choice.way() == 1);
}

TEST_CASE("timed choice: a way that is hopeless is given up early") {
  TimedChoice choice;
  choice.Begin(kAll, 0);
  const Times times{100, 300, 90};
  Use(&choice, times, TimedChoice::kWarmUp);
  const Times used = Use(&choice, times, kTrials);
  CHECK(used[1] == TimedChoice::kUncounted + 3);
  CHECK(choice.way() == 2);
}

TEST_CASE("timed choice: where a use takes long, few are enough") {
  TimedChoice choice;
  choice.Begin(kAll, 0);
  const Times times{9000, 8000, 10'000};
  Use(&choice, times, TimedChoice::kFew);
  REQUIRE(choice.trying());
  CHECK(Use(&choice, times, 3 * TimedChoice::kFew) ==
        Times{TimedChoice::kFew, TimedChoice::kFew, TimedChoice::kFew});
  REQUIRE_FALSE(choice.trying());
  CHECK(choice.way() == 1);
  // A stay is one of uses, however long they take.
  Use(&choice, times, TimedChoice::kShortestStay - 1);
  CHECK_FALSE(choice.trying());
}

}  // namespace sdp::preload
