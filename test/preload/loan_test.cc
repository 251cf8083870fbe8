// Memory that is lent for Zcopy, withdrawn because the connection is to be common to several processes: what
// has been counted as sent arrives once, and the session comes to where it can be frozen.
#include "preload/socket/loan.h"

#include <poll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "preload/socket/clock.h"
#include "preload/socket/session_transfer.h"
#include "test/verbs/qp_pair.h"

namespace sdp::preload {
namespace {

struct Lending {
  explicit Lending(const engine::Options& readers = {}) {
    const auto queue = [](const engine::Options& o) {
      return verbs::QpOptions{.receive_buffer_size = o.receive_buffer_size,
                              .initial_receives = o.receive_buffers};
    };
    engine::Options writers;
    writers.source_threshold = 1000;
    iwarp::test::PairOptions pair;
    pair.a_qp = queue(writers);
    pair.z_qp = queue(readers);
    link = iwarp::test::MakePair(pair);
    auto connecting = std::make_unique<engine::Engine>(engine::Role::kConnecting, writers);
    auto accepting = std::make_unique<engine::Engine>(engine::Role::kAccepting, readers);
    REQUIRE(accepting->HandleHello(connecting->Hello()).has_value());
    REQUIRE(connecting->HandleReply(accepting->HelloAck()).has_value());
    writer = std::make_unique<Session>(std::move(connecting), std::move(link.a.qp));
    reader = std::make_unique<Session>(std::move(accepting), std::move(link.z.qp));
    writer->Pump();
    reader->Pump();
  }

  // Both move until `done`. False: in vain.
  bool Move(const std::function<bool()>& done) {
    const Time give_up = Now() + std::chrono::seconds(20);
    while (!done()) {
      if (Now() > give_up) return false;
      writer->Read();
      reader->Read();
      pollfd links[2] = {{.fd = link.a.fd.value, .events = POLLIN, .revents = 0},
                         {.fd = link.z.fd.value, .events = POLLIN, .revents = 0}};
      poll(links, 2, 1);
    }
    return true;
  }
  bool Lend(Loan* loan) { return loan->Lend(*writer, memory, false) && (writer->Pump(), true); }
  // `loan`'s memory is its owner's again.
  bool Returns(Loan* loan) {
    return Move([&] { return loan->Collect(*writer); });
  }
  // All of it, and nothing behind it.
  std::vector<std::byte> ReadAll() {
    std::vector<std::byte> got(sent.size() + 1);
    size_t size = 0;
    Move([&] {
      const MutableBytes room = MutableBytes(got).subspan(size);
      size += reader->engine().Receive({&room, 1}, {});
      reader->Pump();
      return size >= sent.size();
    });
    got.resize(size);
    CHECK(writer->engine().stats().bcopy_bytes_out == sent.size());
    CHECK_FALSE(writer->has_unsent());
    return got;
  }

  iwarp::test::QpPair link;
  std::unique_ptr<Session> writer, reader;
  std::vector<std::byte> memory = iwarp::test::Pattern(300'000);
  const std::vector<std::byte> sent = memory;
};

engine::Options Patient() {
  engine::Options options;
  options.read_zcopy = true;
  return options;
}

TEST_CASE(
    "loan: what is withdrawn while the peer decides is a copy's, and follows when the peer has answered") {
  Lending ends(Patient());
  Loan loan(Loan::Kind::kSource);
  REQUIRE(ends.Lend(&loan));
  REQUIRE(ends.Move([&] { return ends.reader->engine().advertised_bytes() != 0; }));
  loan.Withdraw(*ends.writer);
  CHECK_FALSE(loan.lent());
  CHECK(loan.offered());
  CHECK_FALSE(loan.free());
  CHECK_FALSE(ends.writer->transfer().freezable());
  std::fill(ends.memory.begin(), ends.memory.end(), std::byte{'!'});
  loan.Withdraw(*ends.writer);  // another fork
  ends.writer->Pump();
  // Somebody else makes progress before the call that lent comes to take what it counts.
  REQUIRE(ends.Returns(&loan));
  CHECK_FALSE(loan.free());
  CHECK(loan.TakeResult() == ends.sent.size());
  CHECK(loan.free());
  ends.writer->Pump();
  CHECK(ends.writer->transfer().freezable());
  CHECK(ends.ReadAll() == ends.sent);
}

TEST_CASE(
    "loan: what the peer has asked for as data, and reads nothing of, is back at once when it is withdrawn") {
  engine::Options few;  // answers with SendSm
  few.receive_buffers = 4;
  few.receive_limit = 4 * few.receive_buffer_size;
  Lending ends(few);
  Loan loan(Loan::Kind::kSource);
  const bool kept_before = GENERATE(false, true);
  REQUIRE(ends.Lend(&loan));
  REQUIRE(ends.Move([&] {
    const engine::Engine& e = ends.writer->engine();
    return e.stats().src_avails_out == 1 && e.advertised_out() == 0 &&
           e.stats().send_credits <= 2;  // none for payload
  }));
  CHECK(ends.writer->engine().offered_bytes() != 0);
  if (kept_before) REQUIRE(loan.Keep(*ends.writer));
  CHECK_FALSE(ends.writer->transfer().freezable());
  loan.Withdraw(*ends.writer);
  std::fill(ends.memory.begin(), ends.memory.end(), std::byte{'!'});
  REQUIRE(loan.Collect(*ends.writer));
  CHECK(loan.TakeResult() == ends.sent.size());
  ends.writer->Pump();
  CHECK(ends.writer->transfer().freezable());
  CHECK(ends.ReadAll() == ends.sent);
}

TEST_CASE("loan: what was never advertised comes back uncounted") {
  Lending ends(Patient());
  Loan loan(Loan::Kind::kSource);
  REQUIRE(loan.Lend(*ends.writer, ends.memory, false));
  loan.Withdraw(*ends.writer);
  REQUIRE(loan.Collect(*ends.writer));
  CHECK(loan.TakeResult() == 0);
  CHECK(loan.free());
  ends.writer->Pump();
  CHECK(ends.writer->transfer().freezable());
}

TEST_CASE("loan: in the child of a fork the count is that of the call, if it goes on there") {
  const bool goes_on = GENERATE(false, true);
  Lending ends(Patient());
  Loan loan(Loan::Kind::kSource);
  REQUIRE(ends.Lend(&loan));
  loan.Withdraw(*ends.writer);
  loan.Forget(goes_on);
  CHECK_FALSE(loan.offered());
  CHECK(loan.free() == !goes_on);
  CHECK(loan.TakeResult() == (goes_on ? ends.sent.size() : 0));
}

}  // namespace
}  // namespace sdp::preload
