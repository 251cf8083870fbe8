// Memory on loan in both directions: who is told that it has come back, and what is left of a loan when the
// connection is closed, common to several processes, gone, or another process's.
#include "preload/socket/lending.h"

#include <catch2/catch.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "test/preload/scripted_session.h"

namespace sdp::preload {
namespace {

// Registers memory, and moves a region where it may.
class RegisteringQueuePair final : public ScriptedQueuePair, public verbs::MovableRegions {
 public:
  explicit RegisteringQueuePair(bool moves) : ScriptedQueuePair(Kind::kEmbedded, this), moves_(moves) {}
  std::optional<verbs::MemoryRegion> Register(MutableBytes memory, verbs::Access) override {
    return verbs::MemoryRegion{.stag = STag{++registered_}, .length = static_cast<uint32_t>(memory.size())};
  }
  bool MoveRegion(STag, MutableBytes) override { return moves_; }

 private:
  const bool moves_;
  uint32_t registered_ = 0;
};

struct Lender {
  explicit Lender(bool moves = true) : connected(10, std::make_unique<RegisteringQueuePair>(moves)) {
    session().engine().SetZcopyThreshold(1000);
  }
  Session& session() { return *connected.session; }
  // The peer knows of the memory from here on, and does not answer.
  bool LendSource() {
    if (!lending.source().loan.Lend(session(), memory, false)) return false;
    session().Pump();
    return true;
  }
  bool LendSink() { return lending.sink().loan.Lend(session(), memory, false); }

  Connected connected;
  std::vector<std::byte> memory = std::vector<std::byte>(100'000, std::byte{'m'});
  Lending lending;
};

TEST_CASE("lending: an offer of either direction counts until it is collected") {
  Lender l;
  CHECK_FALSE(l.lending.offered());
  REQUIRE(l.LendSink());
  CHECK(l.lending.offered());
  CHECK(l.lending.sink().loan.lent());
  CHECK_FALSE(l.lending.Collect(l.session()));
  l.lending.Withdraw(l.session());  // nothing of it was told to the peer: it is back at once
  CHECK(l.lending.Collect(l.session()));
  CHECK_FALSE(l.lending.offered());
  CHECK_FALSE(l.lending.Collect(l.session()));
  CHECK(l.lending.sink().loan.TakeResult() == 0);
}

TEST_CASE(
    "lending: at a close a copy takes the place of what the peer was to read, if the RNIC can do that") {
  for (const bool moves : {true, false}) {
    Lender l(moves);
    REQUIRE(l.LendSource());
    REQUIRE(l.session().engine().source_promised());
    l.lending.AskBack(l.session());
    CHECK(l.lending.source().loan.lent() == !moves);
    CHECK(l.lending.offered());
    if (moves) CHECK(l.lending.source().loan.TakeResult() == l.memory.size());
  }
}

TEST_CASE("lending: with the connection every offer is gone") {
  Lender l;
  REQUIRE(l.LendSource());
  REQUIRE(l.LendSink());
  l.lending.Drop();
  CHECK_FALSE(l.lending.offered());
}

TEST_CASE("lending: in the child of a fork the loan of another thread's call is forgotten, with its lender") {
  Lender l;
  REQUIRE(l.LendSource());
  pthread_t lender{};
  std::thread([&] {
    const CallMark mark;
    l.lending.source().lender.Set(&mark);
    lender = pthread_self();
  }).join();
  CHECK(l.lending.source().lender.Is(lender));
  l.lending.ForgetInChild();
  CHECK_FALSE(l.lending.offered());
  CHECK(l.lending.source().loan.free());
  CHECK_FALSE(l.lending.source().lender.Is(lender));
}

TEST_CASE("lending: where the call that lends forks itself, in a handler, it goes on in the child") {
  Lender l;
  REQUIRE(l.LendSource());
  const CallMark mark;
  l.lending.source().lender.Set(&mark);
  l.lending.ForgetInChild();
  CHECK_FALSE(l.lending.offered());
  CHECK(l.lending.source().lender.IsCaller());
}

}  // namespace
}  // namespace sdp::preload
