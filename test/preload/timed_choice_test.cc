// The choice of a way by trial.
#include "preload/socket/timed_choice.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <utility>

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
// Until the trials are over; how often each way was tried.
Times Try(TimedChoice* choice, const Times& times) {
  REQUIRE(choice->trying());
  Times used{};
  for (uint32_t i = 0; choice->trying(); ++i) {
    REQUIRE(i < 1000);
    ++used[choice->way()];
    choice->Took(std::chrono::microseconds(times[choice->way()]));
  }
  return used;
}
constexpr int kBlock = TimedChoice::kBlock;
constexpr int kTrial = TimedChoice::kUncounted + kBlock;
constexpr uint8_t kAll = 7;

}  // namespace

TEST_CASE("timed choice: the fastest is kept, whichever it is") {
  for (const Times& times : {Times{100, 110, 120}, Times{110, 100, 120}, Times{120, 110, 100}}) {
    TimedChoice choice;
    choice.Begin(kAll, 1);
    CHECK(Use(&choice, times, TimedChoice::kWarmUp) == Times{0, TimedChoice::kWarmUp, 0});
    Try(&choice, times);
    const uint8_t fastest = choice.way();
    CHECK(times[fastest] == 100);
    CHECK(Use(&choice, times, TimedChoice::kShortestStay)[fastest] == TimedChoice::kShortestStay);
    // What is known of it need not be tried.
    const Times again = Try(&choice, times);
    CHECK(again[fastest] == 0);
    CHECK(again[(fastest + 1) % 3] >= kTrial);
    CHECK(choice.way() == fastest);
  }
}

TEST_CASE("timed choice: what is close is timed for longer, the longer the longer the winner is kept") {
  TimedChoice choice;
  choice.Begin(3, 0);
  const Times close{100, 110, 0};
  Use(&choice, close, TimedChoice::kWarmUp);
  // There is nothing yet that the first could be close to.
  CHECK(Try(&choice, close) == Times{kTrial, kTrial + kBlock, 0});
  int before = 2 * kBlock;
  for (uint32_t stay = TimedChoice::kShortestStay; stay < TimedChoice::kLongestStay;
       stay *= TimedChoice::kStayGrows) {
    Use(&choice, close, stay);
    const int tried = Try(&choice, close)[1] - static_cast<int>(TimedChoice::kUncounted);
    CHECK(tried >= before);
    CHECK(tried <= std::max(static_cast<int>(stay) / 16, 2 * kBlock));
    before = tried;
  }
  CHECK(before == TimedChoice::kBlocksKept * TimedChoice::kBlock);
}

TEST_CASE("timed choice: what is not close is timed once") {
  for (const Times& times : {Times{100, 120, 0}, Times{120, 100, 0}}) {
    TimedChoice choice;
    choice.Begin(3, 0);
    Use(&choice, times, TimedChoice::kWarmUp);
    CHECK(Try(&choice, times) == Times{kTrial, kTrial, 0});
  }
}

TEST_CASE("timed choice: of several blocks the first does not count") {
  TimedChoice choice;
  choice.Begin(3, 0);
  Use(&choice, {100, 100, 0}, TimedChoice::kWarmUp + kTrial);
  REQUIRE(choice.way() == 1);
  Use(&choice, {100, 114, 0}, kTrial);
  REQUIRE(choice.trying());
  Use(&choice, {100, 90, 0}, kBlock);
  CHECK_FALSE(choice.trying());
  CHECK(choice.way() == 1);
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
  Use(&choice, times, TimedChoice::kWarmUp);
  Try(&choice, times);
  for (uint32_t stay = TimedChoice::kShortestStay; stay < TimedChoice::kLongestStay;
       stay *= TimedChoice::kStayGrows) {
    Use(&choice, times, stay - 1);
    REQUIRE_FALSE(choice.trying());
    Use(&choice, times, 1);
    Try(&choice, times);
  }
  for (int i = 0; i < 2; ++i) {
    Use(&choice, times, TimedChoice::kLongestStay - 1);
    REQUIRE_FALSE(choice.trying());
    Use(&choice, times, 1);
    Try(&choice, times);
  }
}

TEST_CASE(
    "timed choice: another that has become faster is found, and what is hardly faster is no reason to "
    "change") {
  TimedChoice choice;
  choice.Begin(kAll, 0);
  const Times before{100, 110, 120};
  Use(&choice, before, TimedChoice::kWarmUp);
  Try(&choice, before);
  REQUIRE(choice.way() == 0);
  Use(&choice, before, TimedChoice::kShortestStay);
  Try(&choice, {100, 97, 120});
  CHECK(choice.way() == 0);
  const Times now{100, 97, 90};
  Use(&choice, now, TimedChoice::kStayGrows * TimedChoice::kShortestStay);
  Try(&choice, now);
  CHECK(choice.way() == 2);
  CHECK(Use(&choice, now, TimedChoice::kShortestStay)[2] ==
        TimedChoice::kShortestStay);  // the first stay of the new one
  CHECK(choice.trying());
}

TEST_CASE("timed choice: who does not keep what its trial promised gives way to what was kept before") {
  TimedChoice choice;
  choice.Begin(3, 0);
  Use(&choice, {100, 120, 0}, TimedChoice::kWarmUp);
  Try(&choice, {100, 120, 0});
  Use(&choice, {100, 120, 0}, TimedChoice::kShortestStay);
  Try(&choice, {100, 80, 0});  // by luck
  REQUIRE(choice.way() == 1);
  const uint32_t probation = TimedChoice::kProbation * TimedChoice::kBlock;
  CHECK(Use(&choice, {100, 120, 0}, probation + 1) == Times{1, static_cast<int>(probation), 0});
  CHECK_FALSE(choice.trying());
  // A second time there is none before it.
  Use(&choice, {100, 120, 0}, TimedChoice::kShortestStay - 1);
  Try(&choice, {100, 120, 0});
  CHECK(choice.way() == 0);
}

TEST_CASE("timed choice: first uses and outliers do not count") {
  TimedChoice choice;
  choice.Begin(3, 0);
  Use(&choice, {100, 100, 0}, TimedChoice::kWarmUp);
  for (int way = 0; way < 2; ++way) {
    REQUIRE(choice.way() == way);
    // Not the very first, which would hold that the way were hopeless.
    Use(&choice, {100, 80, 0}, 1);
    Use(&choice, {190, 190, 0}, TimedChoice::kUncounted - 1);
    Use(&choice, {2'000, 2'000, 0}, TimedChoice::kBlock / 8);
    Use(&choice, {100, 80, 0}, TimedChoice::kBlock - TimedChoice::kBlock / 8);
  }
  CHECK_FALSE(choice.trying());
  CHECK(choice.way() == 1);
}

TEST_CASE("timed choice: a way whose times vary is judged by their mean") {
  // The middle way takes now little, now much, and 10 % less than the others on the whole; the last one
  // likewise, and more.
  std::mt19937 random(1);
  std::uniform_real_distribution<double> spread(0.5, 1.5);
  const Times mean{100, 90, 130};
  TimedChoice choice;
  choice.Begin(kAll, 0);
  Times used{};
  constexpr int kUses = 50'000;
  for (int i = 0; i < kUses; ++i) {
    const uint8_t way = choice.way();
    ++used[way];
    choice.Took(
        std::chrono::nanoseconds(static_cast<int64_t>(1000 * mean[way] * (way == 0 ? 1 : spread(random)))));
  }
  CHECK(used[1] > kUses * 8 / 10);
  CHECK(used[2] < kUses / 20);
}

TEST_CASE("timed choice: a way that is hopeless is given up early") {
  TimedChoice choice;
  choice.Begin(kAll, 0);
  const Times times{100, 300, 130};
  Use(&choice, times, TimedChoice::kWarmUp);
  const Times used = Try(&choice, times);
  CHECK(used[0] == kTrial);
  CHECK(used[1] < static_cast<int>(TimedChoice::kUncounted));
  CHECK(used[2] == kTrial - TimedChoice::kBlock / 2);
  CHECK(choice.way() == 0);
}

TEST_CASE("timed choice: where a use takes long, few are enough") {
  TimedChoice choice;
  choice.Begin(kAll, 0);
  const Times times{9000, 8000, 10'000};
  Use(&choice, times, TimedChoice::kFew);
  const int few = TimedChoice::kFew + 2;  // the first two do not count
  CHECK(Try(&choice, times) == Times{few, few, few});
  CHECK(choice.way() == 1);
  // A stay is one of uses, however long they take.
  Use(&choice, times, TimedChoice::kShortestStay - 1);
  CHECK_FALSE(choice.trying());
}

TEST_CASE("timed choice: what takes long and is clearly slower is given up at a glance") {
  for (const auto& [slower, tried] : {std::pair{20'000, 2}, std::pair{13'000, 3}, std::pair{11'000, 5}}) {
    CAPTURE(slower);
    TimedChoice choice;
    choice.Begin(3, 0);
    const Times times{10'000, slower, 0};
    Use(&choice, times, TimedChoice::kFew);
    CHECK(Try(&choice, times)[1] == tried);
    CHECK(choice.way() == 0);
  }
}

}  // namespace sdp::preload
