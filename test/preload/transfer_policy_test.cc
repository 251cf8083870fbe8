// Which way sends and receives go, and what the engine is told of it.
#include "preload/socket/transfer_policy.h"

#include <catch2/catch.hpp>

#include "test/core/engine_pair.h"

namespace sdp::preload {
namespace {

using Connection = TransferPolicy::Connection;

constexpr uint32_t kThreshold = 1000;
constexpr size_t kLarge = 100'000;
constexpr Connection kSoft{.chosen = true, .free = true, .connecting = true};
constexpr Connection kAdapter{.chosen = true, .free = true, .adapter = true, .connecting = true};

Time now{std::chrono::seconds(1)};
Time Clock() { return now; }

engine::Options WithThreshold() {
  engine::Options options;
  options.source_threshold = options.sink_threshold = kThreshold;
  return options;
}

struct Sender {
  explicit Sender(const Connection& c) : connection(c) { policy.Reset(e, c); }
  void Send(size_t bytes, bool blocking = true, bool shared = false) {
    policy.SendBegins(
        e, bytes, blocking, shared, [this] { return connection; }, Clock);
  }

  const Connection connection;
  engine::EnginePair pair{WithThreshold(), WithThreshold()};
  engine::Engine& e = pair.a.engine;
  TransferPolicy policy;
};

TEST_CASE("policy: over the embedded RNIC a stream is copied, where nobody says otherwise") {
  Sender free(kSoft);
  CHECK(free.e.source_threshold() == UINT32_MAX);
  CHECK(free.e.sink_threshold() == kThreshold);
  Sender told({.chosen = true, .free = false});
  CHECK(told.e.source_threshold() == kThreshold);
}

TEST_CASE("policy: turns of large blocks go by Write Zcopy where the ways are not ours to choose") {
  Sender s({.chosen = true, .free = false, .connecting = true});
  for (int i = 0; i < 2; ++i) {
    s.Send(kLarge);
    CHECK_FALSE(s.policy.LendsAhead(s.e));
    s.policy.Received(kLarge);
  }
  s.Send(kLarge);
  // The peer's half is not in Pipelined Mode yet: the engine is told to ask for that, and nothing is lent.
  CHECK_FALSE(s.policy.LendsAhead(s.e));
  CHECK(s.e.source_threshold() == kThreshold);
}

TEST_CASE("policy: with other processes on the connection no turn is counted") {
  const auto lends_after = [](bool shared) {
    Sender s({.chosen = true, .free = false, .connecting = true});
    REQUIRE(s.pair.z.engine.ChangeMode(engine::Half::kSource, engine::FlowMode::kPipelined));
    s.pair.z.Drain();
    s.pair.Settle();
    for (int i = 0; i < 4; ++i) {
      s.Send(kLarge, true, shared);
      s.policy.Received(kLarge);
    }
    s.Send(kLarge, true, shared);
    return s.policy.LendsAhead(s.e);
  };
  CHECK(lends_after(false));
  CHECK_FALSE(lends_after(true));
}

TEST_CASE("policy: large blocking sends over an adapter are timed, others are not") {
  constexpr size_t kLong = size_t{8} << 20;
  Sender s(kAdapter);
  CHECK(s.e.source_threshold() == kThreshold);
  s.Send(kLong, /*blocking=*/false);
  s.Send(kLong, true, /*shared=*/true);
  s.Send(512 * 1024);
  CHECK(s.e.source_threshold() == kThreshold);
  s.Send(kLong);  // a long one is read to begin with
  CHECK(s.e.source_threshold() == 512 * 1024);
  Sender told({.chosen = true, .free = false, .adapter = true});
  told.Send(kLong);
  CHECK(told.e.source_threshold() == kThreshold);
}

TEST_CASE("policy: nothing is counted once sending is over") {
  Sender s(kAdapter);
  s.pair.a.CloseSend();
  s.Send(size_t{8} << 20);
  CHECK(s.e.source_threshold() == kThreshold);
}

TEST_CASE("policy: loans without a reader are followed by copies, twice as many each time, 64 at most") {
  TransferPolicy policy;
  CHECK_FALSE(policy.TakesCopy());
  for (int wanted = 1; wanted <= 256; wanted *= 2) {
    policy.NoteLoan(/*missed=*/true);
    int copies = 0;
    while (policy.TakesCopy()) ++copies;
    CHECK(copies == std::min(wanted, 64));
  }
  policy.NoteLoan(/*missed=*/false);
  CHECK_FALSE(policy.TakesCopy());
}

TEST_CASE("policy: a writer waits for a reader's memory until three waits in a row were in vain") {
  TransferPolicy policy;
  policy.NoteSink(false);
  policy.NoteSink(false);
  CHECK(policy.AwaitsSink());
  policy.NoteSink(true);
  policy.NoteSink(false);
  policy.NoteSink(false);
  CHECK(policy.AwaitsSink());
  policy.NoteSink(false);
  CHECK_FALSE(policy.AwaitsSink());
}

TEST_CASE("policy: how long reads are expected to take follows those that were, within bounds") {
  constexpr size_t kMebibyte = 1 << 20;
  TransferPolicy policy;
  const Duration before = policy.ReadsExpected(kMebibyte);
  CHECK(before == 2 * std::chrono::milliseconds(20));
  CHECK(policy.ReadsExpected(kMebibyte / 2) == before / 2);
  for (int i = 0; i < 50; ++i) policy.NoteReads(std::chrono::seconds(9), kMebibyte);
  CHECK(policy.ReadsExpected(kMebibyte) > std::chrono::milliseconds(99));
  CHECK(policy.ReadsExpected(kMebibyte) <= std::chrono::milliseconds(100));
  for (int i = 0; i < 50; ++i) policy.NoteReads(Duration(1), kMebibyte);
  CHECK(policy.ReadsExpected(kMebibyte) >= std::chrono::milliseconds(2));
  CHECK(policy.ReadsExpected(kMebibyte) < std::chrono::milliseconds(3));
}

}  // namespace
}  // namespace sdp::preload
