// Sequence numbers and credit (SDP 6.1.3, 6.1.5, 6.1.6, 10).
#include <catch2/catch.hpp>

#include "core/engine/credit_ledger.h"
#include "test/core/scripted_peer.h"

namespace sdp::engine {
namespace {

constexpr Options kThree{.receive_buffers = 3, .receive_buffer_size = 1016, .receive_limit = 3 * 1016};
const std::string kText(900, 'x');

AbortReason AfterWrong(const std::function<void(wire::Bsdh*)>& change, const std::string& payload = "x") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "first");
  REQUIRE(peer.end.Send("one") == 3);
  REQUIRE(peer.end.Send("two") == 3);
  peer.Take();
  peer.SayWrong(wire::Data{}, payload, change);
  if (peer.reason() != AbortReason::kNone) CHECK(peer.end.aborted_link);
  return peer.reason();
}

}  // namespace

TEST_CASE("Credit: MSeq counts from zero, MSeqAck is zero until something came") {
  ScriptedPeer peer;
  peer.end.Send("a");
  peer.end.Send("b");
  CHECK(peer.Take().bsdh.mseq == MSeq(0));
  const auto second = peer.Take().bsdh;
  CHECK(second.mseq == MSeq(1));
  CHECK(second.mseq_ack == MSeq(0));
  for (int i = 0; i < 5; ++i) peer.Say(wire::Data{}, "x");
  peer.end.Send("c");
  CHECK(peer.Take().bsdh.mseq_ack == MSeq(4));
}

TEST_CASE("Credit: MSeq wraps to zero") {
  CreditLedger ledger(Role::kAccepting, 0xfffffff0u);
  ledger.SetPosted(10);
  ledger.SetPeerBufs(10);
  for (uint32_t i = 0; i < 100; ++i) {
    const uint32_t mseq = 0xfffffff0u + i;
    REQUIRE(ledger.HandleMessage({.bufs = 10, .mseq = MSeq(mseq), .mseq_ack = MSeq(mseq - 1)},
                                 MessageKind::kPayload) == AbortReason::kNone);
    REQUIRE(ledger.credits() == 10);
    ledger.Post(1);
    const auto stamp = ledger.Stamp(MessageKind::kPayload);
    REQUIRE(stamp.mseq == MSeq(mseq));
    REQUIRE(stamp.mseq_ack == MSeq(mseq));
    REQUIRE(ledger.IsConsistent());
  }
  CHECK(ledger.HandleMessage({.bufs = 10, .mseq = MSeq(84), .mseq_ack = MSeq(0)}, MessageKind::kPayload) ==
        AbortReason::kBadAcknowledgement);
}

TEST_CASE("Credit: whether gratuitous updates alone are unacknowledged, and nothing of the stream is lost") {
  CreditLedger ledger(Role::kAccepting, 7);
  ledger.SetPosted(10);
  ledger.SetPeerBufs(10);
  CHECK_FALSE(ledger.only_updates_unacknowledged());
  (void)ledger.Stamp(MessageKind::kPayload);
  CHECK_FALSE(ledger.only_updates_unacknowledged());
  (void)ledger.Stamp(MessageKind::kUpdate);
  CHECK_FALSE(ledger.only_updates_unacknowledged());
  REQUIRE(ledger.HandleMessage({.bufs = 10, .mseq = MSeq(7), .mseq_ack = MSeq(7)}, MessageKind::kPayload) ==
          AbortReason::kNone);
  CHECK(ledger.only_updates_unacknowledged());
  ledger.NoteLoss();
  CHECK_FALSE(ledger.only_updates_unacknowledged());
}

TEST_CASE("Credit: gaps and repetitions of MSeq are violations") {
  CHECK(AfterWrong([](wire::Bsdh*) {}) == AbortReason::kNone);
  CHECK(AfterWrong([](wire::Bsdh* b) { b->mseq = MSeq(2); }) == AbortReason::kBadSequence);
  CHECK(AfterWrong([](wire::Bsdh* b) { b->mseq = MSeq(0); }) == AbortReason::kBadSequence);
}

TEST_CASE("Credit: MSeqAck names a message that was sent, and never goes back") {
  CHECK(AfterWrong([](wire::Bsdh* b) { b->mseq_ack = MSeq(1); }) == AbortReason::kNone);
  CHECK(AfterWrong([](wire::Bsdh* b) { b->mseq_ack = MSeq(2); }) == AbortReason::kBadAcknowledgement);
  CHECK(AfterWrong([](wire::Bsdh* b) { b->mseq_ack = MSeq(0xffffffff); }) ==
        AbortReason::kBadAcknowledgement);
  ScriptedPeer peer;
  peer.SayWrong(wire::Data{}, "x", [](wire::Bsdh* b) { b->mseq_ack = MSeq(1); });
  CHECK(peer.reason() == AbortReason::kBadAcknowledgement);  // nothing was sent
  ScriptedPeer back;
  for (int i = 0; i < 3; ++i) back.end.Send("x");
  back.HearAll();
  back.Say(wire::Data{}, "x");
  back.SayWrong(wire::Data{}, "x", [](wire::Bsdh* b) { b->mseq_ack = MSeq(1); });
  CHECK(back.reason() == AbortReason::kBadAcknowledgement);
}

TEST_CASE("Credit: Bufs cannot take back what was given") {
  ScriptedPeer peer;
  for (int i = 0; i < 3; ++i) peer.end.Send("x");
  peer.HearAll();
  peer.Say(wire::Data{}, "x");
  peer.SayWrong(wire::Data{}, "x", [](wire::Bsdh* b) { b->bufs = 23; });
  CHECK(peer.reason() == AbortReason::kBadCredit);
}

TEST_CASE("Credit: Len is the length of the message") {
  CHECK(AfterWrong([](wire::Bsdh* b) { b->len = 18; }) == AbortReason::kLengthMismatch);
  CHECK(AfterWrong([](wire::Bsdh* b) { b->len = 16; }) == AbortReason::kLengthMismatch);
  ScriptedPeer peer;
  peer.end.Receive(std::vector<std::byte>(15));
  CHECK(peer.reason() == AbortReason::kShortMessage);
}

TEST_CASE("Credit: more messages than Private Buffers were posted") {
  ScriptedPeer peer({.options = kThree});
  peer.Say(wire::Data{}, kText);  // held: the window is at its reserve
  CHECK(peer.engine().stats().posted_receives == 2);
  SECTION("payload in the reserve") {
    peer.Say(wire::Data{}, kText);
    CHECK(peer.reason() == AbortReason::kCreditOverrun);
  }
  SECTION("no payload is fine there, and its buffer comes back") {
    peer.Say(wire::Data{});
    CHECK(peer.reason() == AbortReason::kNone);
    CHECK(peer.engine().stats().posted_receives == 2);
  }
}

TEST_CASE("Credit: no buffer, no message") {
  CreditLedger ledger(Role::kAccepting);
  ledger.SetPosted(3);
  ledger.SetPeerBufs(3);
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(ledger.HandleMessage({.bufs = 3, .mseq = MSeq(i)}, MessageKind::kControl) == AbortReason::kNone);
  }
  CHECK(ledger.HandleMessage({.bufs = 3, .mseq = MSeq(3)}, MessageKind::kControl) ==
        AbortReason::kCreditOverrun);
}

TEST_CASE("Credit: the reserve, credit by credit") {
  // 10.5, with the calculation of 10.2: Bufs less what is not acknowledged.
  CreditLedger ledger(Role::kAccepting);
  ledger.SetPosted(10);
  ledger.SetPeerBufs(4);
  CHECK(ledger.credits() == 4);
  CHECK(ledger.payload_messages() == 2);
  (void)ledger.Stamp(MessageKind::kPayload);
  (void)ledger.Stamp(MessageKind::kPayload);
  CHECK(ledger.credits() == 2);
  CHECK(ledger.payload_messages() == 0);
  CHECK(ledger.may_send_control());
  (void)ledger.Stamp(MessageKind::kControl);
  CHECK(ledger.credits() == 1);
  CHECK_FALSE(ledger.may_send_control());
  CHECK_FALSE(ledger.update_due(10, true, false, false));  // nothing to give
  // Bufs 3, acknowledges 1 of the messages 0, 1, 2: two credits.
  CHECK(ledger.HandleMessage({.bufs = 3, .mseq = MSeq(0), .mseq_ack = MSeq(1)}, MessageKind::kControl) ==
        AbortReason::kNone);
  CHECK(ledger.credits() == 2);
}

TEST_CASE("Credit: Bufs is what was posted less what was received") {
  ScriptedPeer peer({.options = kThree});
  peer.Say(wire::Data{}, kText);
  peer.end.Send("a");
  CHECK(peer.Take().bsdh.bufs == 2);
  peer.end.Read(2000);
  peer.end.Send("b");
  CHECK(peer.Take().bsdh.bufs == 3);
}

TEST_CASE("Credit: a peer at one credit is told, without its saying anything") {
  // The window is three and the reader slow; the peer's control messages take it down to one.
  ScriptedPeer peer({.options = kThree});
  peer.Say(wire::Data{}, kText);
  CHECK(peer.HearAll() == "nothing");
  peer.Say(wire::ModeChange{.mode = wire::ModeChange::kPipelined});
  CHECK(peer.HearAll() == "Data");  // the ModeChange's buffer is posted again
  CHECK(peer.end.Read(2000).size() == 900);
  CHECK(peer.HearAll() == "Data");  // at two it could not send payload
  CHECK(peer.engine().stats().gratuitous_updates_out == 2);
}

TEST_CASE("Credit: a peer at one credit is told however often it was, while the window is open") {
  // It has payload and asks with updates for the third credit; nothing else happens.
  ScriptedPeer peer({.options = kThree, .role = Role::kConnecting});
  for (int i = 0; i < 50; ++i) {
    peer.Say(wire::Data{});
    REQUIRE(peer.HearAll() == "nothing");  // at two
    peer.Say(wire::Data{});
    REQUIRE(peer.HearAll() == "Data");
  }
}

TEST_CASE("Credit: a peer at one credit is told though a writer may come back for ours") {
  ScriptedPeer peer({.options = kThree, .role = Role::kConnecting, .bufs = 5});
  peer.end.Send("a");
  peer.end.Send("b");
  peer.HearAll();
  peer.bufs = 3;
  peer.Say(wire::Data{});
  peer.Say(wire::Data{});
  REQUIRE(peer.HearAll() == "Data");
  SECTION("with the credit that it needs for payload") {
    peer.Say(wire::Data{});
    REQUIRE(peer.end.Send(std::string(5000, 'x')) == 1000);
    REQUIRE(peer.HearAll() == "Data payload=1000");
    peer.Say(wire::Data{});
    REQUIRE(peer.HearAll() == "nothing");
    REQUIRE(peer.engine().stats().send_credits == 3);
  }
  SECTION("with a window that is shut") {
    peer.Say(wire::Data{}, kText);
    REQUIRE(peer.end.Send(std::string(5000, 'x')) == 1000);
    REQUIRE(peer.HearAll() == "Data payload=1000");
    REQUIRE(peer.engine().stats().posted_receives == 2);
  }
  peer.Say(wire::Data{});
  CHECK(peer.HearAll() == "Data");
}

TEST_CASE("Credit: an update at least once per half a window, and not more often") {
  ScriptedPeer peer;  // 24
  for (int i = 0; i < 11; ++i) {
    peer.Say(wire::Data{}, "x");
    peer.end.Read(10);
  }
  CHECK(peer.HearAll() == "nothing");
  peer.Say(wire::Data{}, "x");
  peer.end.Read(10);
  CHECK(peer.HearAll() == "Data");
  for (int i = 0; i < 1200; ++i) {
    peer.Say(wire::Data{}, "x");
    peer.end.Read(10);
  }
  CHECK(peer.engine().stats().gratuitous_updates_out <= 101);
}

TEST_CASE("Credit: an update that somebody asks for leaves although none is due, once") {
  ScriptedPeer peer({.role = GENERATE(Role::kConnecting, Role::kAccepting)});
  CHECK(peer.HearAll() == "nothing");
  peer.engine().SendUpdate();
  peer.end.Drain();
  CHECK(peer.HearAll() == "Data");
  CHECK(peer.HearAll() == "nothing");
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Credit: data carries the update") {
  ScriptedPeer peer;
  for (int i = 0; i < 200; ++i) {
    peer.Say(wire::Data{}, "x");
    peer.end.Read(10);
    peer.end.Send("y");
    REQUIRE(peer.HearAll() == "Data payload=1");
  }
  CHECK(peer.engine().stats().gratuitous_updates_out == 0);
}

TEST_CASE("Credit: two peers at the smallest windows fall silent") {
  for (const AckIn ack : {AckIn::kReply, AckIn::kSend}) {
    EnginePair pair(kThree, kThree, ack);
    pair.Settle(20);
    for (int i = 0; i < 50; ++i) {
      pair.a.Send(kText);
      pair.z.Send(kText);
      pair.Settle(100);
      pair.z.Read(5000);
      pair.Settle(100);
      pair.a.Read(5000);
      pair.Settle(100);
    }
  }
}

TEST_CASE("Credit: two peers with closed windows fall silent after a message that needs an answer") {
  EnginePair pair(kThree, kThree);
  for (int i = 0; i < 4; ++i) {
    pair.a.Send(kText, {.buffering = Buffering::kFull});
    pair.z.Send(kText, {.buffering = Buffering::kFull});
    pair.Settle(100);
  }
  CHECK(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kPipelined));
  pair.a.Drain();
  pair.Settle(100);
  CHECK(pair.z.engine.stats().sink_mode == FlowMode::kPipelined);
}

TEST_CASE("Credit: an MSeqAck of zero grants nothing that is not there") {
  // Both send before they hear: the peer's MSeqAck 0 and Bufs 3 do not say that message 0 arrived.
  ScriptedPeer peer({.bufs = 3});
  peer.end.Send("a");
  CHECK(peer.engine().stats().send_credits == 2);
  peer.Say(wire::Data{}, "x");
  CHECK(peer.engine().stats().send_credits == 2);
  // Bufs 2 does say it.
  ScriptedPeer knows({.bufs = 3});
  knows.end.Send("a");
  knows.bufs = 2;
  knows.Say(wire::Data{}, "x");
  CHECK(knows.engine().stats().send_credits == 2);
  knows.bufs = 3;
  knows.Say(wire::Data{}, "x");
  CHECK(knows.engine().stats().send_credits == 3);
}

}  // namespace sdp::engine
