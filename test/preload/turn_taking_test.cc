// When a receive lends its memory ahead of the peer's answer.
#include "preload/socket/turn_taking.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

constexpr uint64_t kLarge = 1000;

void Ask(TurnTaking* turns, uint64_t bytes) {
  if (turns->answered()) turns->Begin(kLarge);
  turns->Sent(bytes);
}

void Turn(TurnTaking* turns, uint64_t question, uint64_t answer) {
  Ask(turns, question);
  turns->Received(answer);
}

}  // namespace

TEST_CASE("turns: two large answers in a row make a third likely") {
  TurnTaking turns;
  Turn(&turns, kLarge, kLarge);
  CHECK_FALSE(turns.ShouldLend(kLarge));
  Turn(&turns, kLarge, kLarge);
  CHECK_FALSE(turns.ShouldLend(kLarge));
  Ask(&turns, kLarge);
  CHECK(turns.ShouldLend(kLarge));
  CHECK(turns.regular(kLarge));
  turns.Received(kLarge - 1);
  Ask(&turns, kLarge);
  CHECK_FALSE(turns.ShouldLend(kLarge));
  CHECK_FALSE(turns.regular(kLarge));
}

TEST_CASE("turns: an answer in pieces is one, a question in pieces too") {
  TurnTaking turns;
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 4; ++k) Ask(&turns, kLarge / 4);
    for (int k = 0; k < 2; ++k) turns.Received(kLarge / 2);
  }
  Ask(&turns, kLarge);
  CHECK(turns.ShouldLend(kLarge));
}

TEST_CASE("turns: large answers to small questions are none, nor is it the other way round") {
  TurnTaking turns;
  for (int i = 0; i < 5; ++i) Turn(&turns, 1, kLarge);
  Ask(&turns, 1);
  CHECK_FALSE(turns.ShouldLend(kLarge));
  for (int i = 0; i < 5; ++i) Turn(&turns, kLarge, 1);
  Ask(&turns, kLarge);
  CHECK_FALSE(turns.ShouldLend(kLarge));
  CHECK_FALSE(turns.ShouldInvite());
  for (int i = 0; i < 2; ++i) Turn(&turns, kLarge, kLarge);
  Ask(&turns, 1);
  CHECK_FALSE(turns.ShouldLend(kLarge));
}

TEST_CASE("turns: an invitation that is not accepted is not repeated for ever") {
  TurnTaking turns;
  for (int i = 0; i < 2; ++i) Turn(&turns, kLarge, kLarge);
  CHECK_FALSE(turns.ShouldInvite());  // the turn that counts has not begun
  int invitations = 0;
  for (int i = 0; i < 100; ++i) {
    Ask(&turns, kLarge);
    invitations += turns.ShouldInvite();
    turns.Received(kLarge);
  }
  CHECK(invitations > 1);
  CHECK(invitations < 10);
  turns.Accepted();
  CHECK(turns.ShouldInvite());
}

TEST_CASE("turns: who receives for ever is no party to them") {
  TurnTaking turns;
  for (int i = 0; i < 3; ++i) Turn(&turns, kLarge, kLarge);
  for (int i = 0; i < 100; ++i) turns.Received(1 << 20);
  CHECK_FALSE(turns.ShouldLend(kLarge));
  CHECK_FALSE(turns.regular(kLarge));
}

TEST_CASE("turns: memory that is lent for nothing is lent more and more seldom") {
  TurnTaking turns;
  for (int i = 0; i < 2; ++i) Turn(&turns, kLarge, kLarge);
  Ask(&turns, kLarge);
  int lent = 0;
  for (int i = 0; i < 10000; ++i) {
    if (!turns.ShouldLend(kLarge)) continue;
    ++lent;
    turns.Lent(false);
  }
  CHECK(lent > 5);
  CHECK(lent < 30);
  CHECK_FALSE(turns.regular(kLarge));
  while (!turns.ShouldLend(kLarge)) {
  }
  turns.Lent(true);
  CHECK(turns.ShouldLend(kLarge));
  CHECK(turns.regular(kLarge));
}

}  // namespace sdp::preload
