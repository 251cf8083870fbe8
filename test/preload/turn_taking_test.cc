// Which way large blocks go that are sent in turns.
#include "preload/socket/turn_taking.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

using Way = TurnTaking::Way;

constexpr uint64_t kLarge = 1000;
constexpr uint64_t kThreshold = kLarge - 1;

// One end, and what it sees of the other.
struct End {
  bool connected = true;
  bool tries = true;
  bool peer_lends = false;
  uint64_t read_bytes_in = 0;
  Time now{};
  TurnTaking turns{};

  void Send(uint64_t bytes) {
    if (turns.answered() && turns.End(kThreshold))
      turns.Begin({.now = now,
                   .read_bytes_in = read_bytes_in,
                   .peer_lends = peer_lends,
                   .tries = tries,
                   .connected = connected});
    turns.Sent(bytes);
  }
  void Turn(uint64_t question, uint64_t answer, Duration taken = std::chrono::microseconds(100)) {
    Send(question);
    turns.Received(answer);
    now += taken;
  }
};

// Until the trials are over, each way taking its time.
void Try(End* end, uint64_t question, uint64_t answer, Duration copy, Duration read, Duration write) {
  for (uint32_t i = 0; i < TimedChoice::kWarmUp + 3 * (TimedChoice::kUncounted + 2 * TimedChoice::kBlock) +
                               TimedChoice::kBlock;
       ++i) {
    end->Send(question);
    end->turns.Received(answer);
    end->now += end->turns.way() == Way::kCopy ? copy : end->turns.way() == Way::kRead ? read : write;
  }
}
constexpr auto us(int64_t count) { return std::chrono::microseconds(count); }

}  // namespace

TEST_CASE("turns: the end that has connected tries each way and keeps to the fastest") {
  End end;
  Try(&end, kLarge, kLarge, us(100), us(90), us(80));
  CHECK(end.turns.way() == Way::kWrite);
  CHECK(end.turns.regular(kThreshold));
  End reads;
  Try(&reads, kLarge, kLarge, us(100), us(70), us(80));
  CHECK(reads.turns.way() == Way::kRead);
  CHECK_FALSE(reads.turns.ShouldLend(kThreshold));
}

TEST_CASE("turns: memory is lent in the turn's answer alone") {
  End end;
  Try(&end, kLarge, kLarge, us(100), us(90), us(80));
  CHECK_FALSE(end.turns.ShouldLend(kLarge));  // what was sent is not large then
  CHECK(end.turns.ShouldLend(kThreshold));
  end.turns.Received(uint64_t{64} << 20);  // who receives for ever is no party to turns
  CHECK_FALSE(end.turns.ShouldLend(kThreshold));
}

TEST_CASE("turns: who has accepted answers in kind") {
  End end{.connected = false};
  for (int i = 0; i < 3; ++i) end.Turn(kLarge, kLarge);
  CHECK(end.turns.way() == Way::kCopy);
  end.read_bytes_in += kLarge;
  end.Send(kLarge);
  CHECK(end.turns.way() == Way::kRead);
  end.turns.Received(kLarge);
  end.peer_lends = true;
  end.Send(kLarge);
  CHECK(end.turns.way() == Way::kWrite);
  CHECK(end.turns.ShouldLend(kThreshold));
  end.turns.Received(kLarge);
  end.peer_lends = false;
  end.Send(kLarge);
  CHECK(end.turns.way() == Way::kCopy);
  CHECK_FALSE(end.turns.ShouldLend(kThreshold));
}

TEST_CASE("turns: an answer in pieces is one, a question in pieces too") {
  End end{.connected = false, .peer_lends = true};
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 4; ++k) end.Send(kLarge / 4);
    for (int k = 0; k < 2; ++k) end.turns.Received(kLarge / 2);
  }
  CHECK(end.turns.way() == Way::kCopy);
  for (int k = 0; k < 4; ++k) end.Send(kLarge / 4);
  CHECK(end.turns.ShouldLend(kThreshold));
}

TEST_CASE("turns: who asks small questions decides, and never by reading; who answers does likewise") {
  for (const bool connected : {false, true}) {
    End asks{.connected = connected};
    Try(&asks, 1, kLarge, us(100), us(1), us(80));
    CHECK(asks.turns.ShouldLend(kThreshold));
    asks.turns.Received(uint64_t{4} << 20);
    CHECK_FALSE(asks.turns.ShouldLend(kThreshold));  // more than an answer
    End answers{.connected = connected, .read_bytes_in = 1};
    for (int i = 0; i < 3; ++i) answers.Turn(kLarge, 1);
    CHECK(answers.turns.way() == Way::kCopy);
    answers.peer_lends = true;
    answers.Send(kLarge);
    CHECK(answers.turns.way() == Way::kWrite);
    CHECK_FALSE(answers.turns.ShouldLend(kThreshold));  // for a question
  }
}

TEST_CASE("turns: what is small, very large, not alike or one way only is copied") {
  End end{.peer_lends = true};
  const auto copies = [&] {
    end.Send(kLarge);
    const bool copied = end.turns.way() == Way::kCopy;
    end.turns.Received(kLarge);
    return copied;
  };
  Try(&end, kLarge, kLarge, us(100), us(90), us(80));
  REQUIRE_FALSE(copies());
  end.Turn(kLarge - 1, kLarge - 1);
  CHECK(copies());
  Try(&end, kLarge, kLarge, us(100), us(90), us(80));
  REQUIRE_FALSE(copies());
  end.Turn(1, kLarge);
  end.Turn(kLarge, 1);
  CHECK(copies());
  Try(&end, 1, (uint64_t{4} << 20) + 1, us(100), us(90), us(80));
  CHECK(copies());
  Try(&end, kLarge, kLarge, us(100), us(90), us(80));
  REQUIRE_FALSE(copies());
  end.Send(uint64_t{64} << 20);
  end.Send(kLarge);
  CHECK(end.turns.way() == Way::kCopy);
}

TEST_CASE("turns: of another size they are tried anew, those between do not count") {
  End end;
  Try(&end, kLarge, kLarge, us(100), us(90), us(80));
  REQUIRE(end.turns.way() == Way::kWrite);
  for (int i = 0; i < 100; ++i) {
    end.Turn(kLarge, kLarge);
    end.Turn(100 * kLarge, 100 * kLarge);
  }
  CHECK(end.turns.way() == Way::kWrite);
  for (int i = 0; i < 12; ++i) end.Turn(100 * kLarge, 100 * kLarge);
  CHECK(end.turns.way() == Way::kCopy);
  Try(&end, 100 * kLarge, 100 * kLarge, us(100), us(70), us(80));
  CHECK(end.turns.way() == Way::kRead);
}

TEST_CASE("turns: what is copied behind a small turn does not count for a way that is tried") {
  End end;
  int copied = 0;
  for (int i = 0; i < 400; ++i) {
    end.Send(kLarge);
    copied += end.turns.way() == Way::kCopy;
    end.turns.Received(kLarge);
    end.now += end.turns.way() == Way::kCopy ? us(100) : end.turns.way() == Way::kRead ? us(130) : us(120);
    if (i % 3 == 2) end.Turn(1, 1);
  }
  // Of three turns in a row only the last can go another way, and copying is faster: reading so much that
  // half a trial shows it.
  constexpr int kTrial = TimedChoice::kUncounted + TimedChoice::kBlock,
                kHalf = TimedChoice::kUncounted + TimedChoice::kBlock / 2;
  CHECK(copied == 400 - kHalf - kTrial);
}

TEST_CASE("turns: where the ways are not ours to choose, memory is lent by both ends") {
  for (const bool connected : {false, true}) {
    End end{.connected = connected, .tries = false};
    for (int i = 0; i < 2; ++i) end.Turn(kLarge, kLarge);
    CHECK(end.turns.way() == Way::kCopy);
    end.Send(kLarge);
    CHECK(end.turns.ShouldLend(kThreshold));
    for (int i = 0; i < 4; ++i) end.Turn(1, kLarge);
    CHECK_FALSE(end.turns.ShouldLend(kThreshold));
  }
}

TEST_CASE("turns: a small send where nothing was large counts as any other") {
  End usual, small;
  for (int i = 0; i < 20; ++i) {
    usual.Send(10);
    REQUIRE(small.turns.SentSmall(10, kThreshold));
    for (End* end : {&usual, &small}) end->turns.Received(i == 19 ? kLarge : 10);
  }
  // Large blocks came: only the usual way knows what to do.
  CHECK_FALSE(small.turns.SentSmall(10, kThreshold));
  for (End* end : {&usual, &small}) Try(end, kLarge, kLarge, us(100), us(90), us(80));
  CHECK(usual.turns.way() == Way::kWrite);
  CHECK(small.turns.way() == Way::kWrite);
}

}  // namespace sdp::preload
