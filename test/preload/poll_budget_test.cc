#include "preload/socket/poll_budget.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

using std::chrono::microseconds;

TEST_CASE("A new connection may look as long as the configuration allows; without a time it never looks") {
  CHECK(PollBudget(microseconds(40)).Next() == microseconds(40));
  PollBudget none(Duration::zero());
  CHECK(none.Next() == Duration::zero());
  none.NoteFound();
  none.NoteSlept(Duration::zero());
  CHECK(none.Next() == Duration::zero());
}

TEST_CASE(
    "Without a configured time a look lasts as long as a sleep costs, also when a wait was noted before") {
  PollBudget budget(std::nullopt);
  budget.NoteSlept(microseconds(1));
  CHECK(budget.Next() == SleepCost());
  CHECK(SleepCost() >= microseconds(50));
  CHECK(SleepCost() <= microseconds(500));
}

TEST_CASE("Long waits lose the time that short ones earn") {
  PollBudget budget(microseconds(40));
  budget.NoteSlept(microseconds(1000));
  CHECK(budget.Next() == microseconds(20));
  for (int i = 0; i < 10; ++i) budget.NoteSlept(microseconds(1000));
  CHECK(budget.Next() == Duration::zero());
  // The sleep's own cost counts little against it.
  budget.NoteSlept(microseconds(80));
  CHECK(budget.Next() == microseconds(5));
  for (int i = 0; i < 10; ++i) budget.NoteFound();
  CHECK(budget.Next() == microseconds(40));
}

TEST_CASE("A wait that something else ends is a long one, or says nothing") {
  PollBudget budget(microseconds(40));
  budget.NoteSlept(microseconds(1000));
  budget.NoteWaited(microseconds(80));
  CHECK(budget.Next() == microseconds(20));
  budget.NoteWaited(microseconds(81));
  CHECK(budget.Next() == microseconds(10));
  budget.NoteCrowded();
  for (int i = 0; i <= PollBudget::kWaitsAfterCrowd; ++i) {
    CHECK(budget.Next() == Duration::zero());
    budget.NoteWaited(microseconds(10));
  }
  CHECK(budget.Next() == microseconds(10));
}

TEST_CASE("A wait that ends by what no look would have found loses time, however short it was") {
  PollBudget budget(microseconds(40));
  budget.NoteElsewhere();
  CHECK(budget.Next() == microseconds(20));
  budget.NoteFound();
  CHECK(budget.Next() == microseconds(40));
  for (int i = 0; i < 4; ++i) budget.NoteElsewhere();
  CHECK(budget.Next() == Duration::zero());
}

TEST_CASE("Where another thread needs the core the next waits sleep at once, whatever they earn") {
  PollBudget budget(microseconds(40));
  budget.NoteCrowded();
  budget.NoteSlept(microseconds(10));  // that very wait
  for (int i = 0; i < PollBudget::kWaitsAfterCrowd; ++i) {
    CHECK(budget.Next() == Duration::zero());
    budget.NoteSlept(microseconds(10));
  }
  CHECK(budget.Next() == microseconds(40));
}

TEST_CASE(
    "Each crowd doubles the number of waits that sleep at once, and what polling finds brings it back") {
  PollBudget budget(microseconds(40));
  const auto waits_asleep = [&] {
    budget.NoteCrowded();
    budget.NoteSlept(microseconds(10));  // that very wait
    int waits = 0;
    while (budget.Next() == Duration::zero()) {
      ++waits;
      budget.NoteSlept(microseconds(10));
    }
    return waits;
  };
  for (int expected = PollBudget::kWaitsAfterCrowd; expected < PollBudget::kMostWaitsAfterCrowd;
       expected *= 2)
    CHECK(waits_asleep() == expected);
  CHECK(waits_asleep() == PollBudget::kMostWaitsAfterCrowd);
  CHECK(waits_asleep() == PollBudget::kMostWaitsAfterCrowd);
  for (int found = 0; found < 100; ++found) budget.NoteFound();
  CHECK(waits_asleep() == PollBudget::kWaitsAfterCrowd);
}

}  // namespace
}  // namespace sdp::preload
