// What a peer may ask of us, and what of it is a violation (SDP 9.2 to 9.5, 10.6, 11, 12, 13.1).
#include <catch2/catch.hpp>

#include "core/engine/advert_answers.h"
#include "test/core/scripted_peer.h"

namespace sdp::engine {
namespace {

constexpr wire::ModeChange kSinkBuffered{.mode = wire::ModeChange::kBuffered, .receivers_source = false};
constexpr wire::ModeChange kSinkPipelined{.mode = wire::ModeChange::kPipelined, .receivers_source = false};
constexpr wire::ModeChange kSinkCombined{.mode = wire::ModeChange::kCombined, .receivers_source = false};
constexpr wire::ModeChange kSourceCombined{.mode = wire::ModeChange::kCombined, .receivers_source = true};

wire::SrcAvail Src(uint32_t len) { return {.len = len, .stag = STag(7), .va = 0x1000}; }
wire::SinkAvail Sink(uint32_t non_discards) {
  return {.len = 100000, .stag = STag(8), .va = 0x2000, .non_discards = non_discards};
}

void MakeSourcePipelined(ScriptedPeer* peer) {
  REQUIRE(peer->engine().ChangeMode(Half::kSource, FlowMode::kPipelined));
  peer->end.Drain();
  REQUIRE(peer->Hear() == "ModeChange mode=2 s=0");
}

}  // namespace

TEST_CASE("Requests: a SrcAvail's payload is data, the rest is asked for with SendSm") {
  ScriptedPeer peer;
  peer.Say(Src(10), "abc");
  REQUIRE(peer.end.flights.size() == 1);
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "SendSm");
  CHECK(peer.end.Read(100) == "abc");
  peer.Say(wire::Data{}, "defg");
  peer.Say(wire::Data{}, "hij");
  CHECK(peer.end.Read(100) == "defghij");
  peer.Say(Src(2), "k");
  CHECK(peer.Hear() == "SendSm");
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Requests: Combined Mode has one SrcAvail at a time, with payload, completed before the next") {
  AdvertAnswers adverts(5);
  CHECK(adverts.HandleSrcAvail(Src(10), 3, FlowMode::kCombined) == AbortReason::kNone);
  CHECK(adverts.HandleSrcAvail(Src(10), 3, FlowMode::kCombined) == AbortReason::kTooManyAdverts);
  ScriptedPeer empty;
  empty.Say(Src(10));
  CHECK(empty.reason() == AbortReason::kBadAdvertisement);
  ScriptedPeer owed;
  owed.Say(Src(10), "abc");
  CHECK(owed.Hear() == "SendSm");
  owed.Say(Src(10), "abc");
  CHECK(owed.reason() == AbortReason::kUnexpectedMid);
}

TEST_CASE("Requests: DisConn before the data that a SendSm asked for") {
  ScriptedPeer peer;
  peer.Say(Src(10), "abc");
  peer.Say(wire::DisConn{});
  CHECK(peer.reason() == AbortReason::kUnexpectedMid);
}

TEST_CASE("Requests: Pipelined Mode has many SrcAvails without payload") {
  ScriptedPeer peer({.options = {.max_adverts = 3}});
  peer.Say(kSinkPipelined);
  CHECK(peer.engine().stats().sink_mode == FlowMode::kPipelined);
  peer.Say(Src(10));
  peer.Say(Src(20));
  CHECK(peer.HearAll() == "SendSm, SendSm");
  peer.Say(wire::Data{}, std::string(10, 'a'));
  peer.Say(wire::Data{}, std::string(20, 'b'));
  CHECK(peer.reason() == AbortReason::kNone);
  peer.Say(Src(10), "x");
  CHECK(peer.reason() == AbortReason::kBadAdvertisement);
}

TEST_CASE("Requests: advertisements are limited to our MaxAdverts") {
  AdvertAnswers adverts(2);
  CHECK(adverts.HandleSrcAvail(Src(10), 0, FlowMode::kPipelined) == AbortReason::kNone);
  CHECK(adverts.HandleSrcAvail(Src(10), 0, FlowMode::kPipelined) == AbortReason::kNone);
  CHECK(adverts.HandleSrcAvail(Src(10), 0, FlowMode::kPipelined) == AbortReason::kTooManyAdverts);
  // Payload may not pass what is advertised before it.
  CHECK(adverts.HandlePayload(1) == AbortReason::kUnexpectedMid);
  adverts.SendSmTaken();
  CHECK(adverts.HandlePayload(10) == AbortReason::kNone);
  CHECK(adverts.HandlePayload(1) == AbortReason::kUnexpectedMid);

  AdvertAnswers sinks(2);
  CHECK(sinks.HandleSinkAvail(Sink(0), FlowMode::kPipelined, false) == AbortReason::kNone);
  CHECK(sinks.HandleSinkAvail(Sink(0), FlowMode::kPipelined, false) == AbortReason::kNone);
  CHECK(sinks.HandleSinkAvail(Sink(0), FlowMode::kPipelined, false) == AbortReason::kTooManyAdverts);
}

TEST_CASE("Requests: SrcAvailCancel takes back what is unanswered with one SendSm, else it is ignored") {
  AdvertAnswers adverts(5);
  for (int i = 0; i < 3; ++i)
    CHECK(adverts.HandleSrcAvail(Src(10), 0, FlowMode::kPipelined) == AbortReason::kNone);
  adverts.HandleSrcAvailCancel();
  CHECK(adverts.send_sm_due());
  CHECK(adverts.HandlePayload(1) == AbortReason::kUnexpectedMid);
  adverts.SendSmTaken();
  CHECK_FALSE(adverts.send_sm_due());
  CHECK(adverts.HandlePayload(1) == AbortReason::kNone);
  CHECK(adverts.HandleDisConn() == AbortReason::kNone);  // nothing is owed

  ScriptedPeer peer;
  peer.Say(wire::SrcAvailCancel{});
  CHECK(peer.HearAll() == "nothing");
  peer.Say(Src(10), "abc");
  CHECK(peer.Hear() == "SendSm");
  peer.Say(wire::SrcAvailCancel{});
  CHECK(peer.HearAll() == "nothing");
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Requests: a SrcAvailCancel that crosses our SendSm takes back what the SendSm asked for") {
  ScriptedPeer gone;
  gone.Say(Src(10), "abc");
  CHECK(gone.Hear() == "SendSm");
  gone.Say(wire::SrcAvailCancel{});
  gone.Say(wire::DisConn{});
  CHECK(gone.HearAll() == "nothing");
  CHECK(gone.reason() == AbortReason::kNone);
  // The next advertisement, or the data after all.
  ScriptedPeer next;
  next.Say(Src(10), "abc");
  CHECK(next.Hear() == "SendSm");
  next.Say(wire::SrcAvailCancel{});
  next.Say(Src(10), "abc");
  CHECK(next.Hear() == "SendSm");
  next.Say(wire::DisConn{});
  CHECK(next.reason() == AbortReason::kUnexpectedMid);  // this one was not taken back
  ScriptedPeer late;
  late.Say(Src(10), "abc");
  late.Say(wire::SrcAvailCancel{});
  late.Say(wire::Data{}, "defghij");
  late.Say(Src(10), "abc");
  CHECK(late.reason() == AbortReason::kNone);
  CHECK(late.end.Read(100) == "abcdefghijabc");
}

TEST_CASE("Requests: SinkAvail is a violation unless we are in Pipelined Mode") {
  ScriptedPeer peer;
  peer.Say(Sink(0));
  CHECK(peer.reason() == AbortReason::kUnexpectedMid);
  ScriptedPeer buffered;
  REQUIRE(buffered.engine().ChangeMode(Half::kSource, FlowMode::kBuffered));
  buffered.end.Drain();
  buffered.Say(Sink(0));
  CHECK(buffered.reason() == AbortReason::kUnexpectedMid);
}

TEST_CASE("Requests: in Pipelined Mode a SinkAvail's payload is data, and we force Bcopy") {
  ScriptedPeer peer;
  MakeSourcePipelined(&peer);
  peer.Say(Sink(0), "command");
  CHECK(peer.end.Read(100) == "command");
  CHECK(peer.end.Send("reply") == 5);
  CHECK(peer.Hear() == "Data payload=5");
  // That reply used the advertisement up: nothing is left to cancel.
  peer.Say(wire::SinkAvailCancel{});
  CHECK(peer.HearAll() == "nothing");
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Requests: stale SinkAvails are told by NonDiscards") {
  // 9.5.1: two payload messages under way, three advertisements that cross them; the third is good.
  ScriptedPeer peer;
  MakeSourcePipelined(&peer);
  peer.end.Send("one");
  peer.end.Send("two");
  peer.HearAll();
  peer.Say(Sink(0));
  peer.Say(Sink(0));
  peer.Say(wire::SinkAvailCancel{});
  CHECK(peer.HearAll() == "nothing");  // both were stale
  peer.Say(Sink(0));
  peer.Say(wire::SinkAvailCancel{});
  REQUIRE(peer.end.flights.size() == 1);
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.HearAll() == "SinkCancelAck");
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Requests: leaving Pipelined Mode makes late SinkAvails harmless, until the peer knows") {
  ScriptedPeer peer;
  MakeSourcePipelined(&peer);
  peer.Say(wire::Data{});
  REQUIRE(peer.engine().ChangeMode(Half::kSource, FlowMode::kCombined));
  peer.end.Drain();
  CHECK_FALSE(peer.engine().ChangeMode(Half::kSource, FlowMode::kBuffered));  // 12.4
  peer.Say(Sink(0), "data");
  CHECK(peer.reason() == AbortReason::kNone);
  CHECK(peer.end.Read(10) == "data");
  CHECK(peer.Hear() == "ModeChange mode=1 s=0");
  peer.Say(wire::Data{});
  CHECK(peer.engine().ChangeMode(Half::kSource, FlowMode::kBuffered));
  peer.end.Drain();
  CHECK(peer.Hear() == "ModeChange mode=0 s=0");
  peer.Say(Sink(0));
  CHECK(peer.reason() == AbortReason::kUnexpectedMid);
}

TEST_CASE("Requests: ModeChange obeys figures 26 and 27") {
  const auto after = [](std::initializer_list<wire::ModeChange> changes) {
    ScriptedPeer peer;
    for (const auto& change : changes) peer.Say(change);
    if (peer.reason() == AbortReason::kNone) return std::string(ToString(peer.engine().stats().sink_mode));
    return std::string(ToString(peer.reason()));
  };
  CHECK(after({kSinkBuffered}) == "buffered");
  CHECK(after({kSinkPipelined}) == "pipelined");
  CHECK(after({kSinkPipelined, kSinkCombined}) == "combined");
  CHECK(after({kSinkCombined}) == "bad-mode-change");
  CHECK(after({kSinkBuffered, kSinkCombined}) == "bad-mode-change");  // ours to make
  CHECK(after({kSinkBuffered, kSinkPipelined}) == "bad-mode-change");
  CHECK(after({kSinkPipelined, kSinkBuffered}) == "bad-mode-change");
  CHECK(after({kSourceCombined}) == "bad-mode-change");
  CHECK(after({wire::ModeChange{.mode = wire::ModeChange::kPipelined, .receivers_source = true}}) ==
        "bad-mode-change");
  CHECK(after({wire::ModeChange{.mode = wire::ModeChange::kBuffered, .receivers_source = true}}) ==
        "bad-mode-change");
}

TEST_CASE("Requests: Buffered Mode forbids SrcAvail") {
  ScriptedPeer peer;
  peer.Say(kSinkBuffered);
  peer.Say(Src(10), "abc");
  CHECK(peer.reason() == AbortReason::kUnexpectedMid);
}

TEST_CASE("Requests: we change a mode only as its master, and it holds at once") {
  EnginePair pair({}, {});
  CHECK_FALSE(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kCombined));
  CHECK_FALSE(pair.a.engine.ChangeMode(Half::kSink, FlowMode::kBuffered));
  CHECK_FALSE(pair.a.engine.ChangeMode(Half::kSink, FlowMode::kPipelined));
  REQUIRE(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kBuffered));
  CHECK_FALSE(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kPipelined));  // one at a time
  pair.a.Drain();
  CHECK_FALSE(pair.a.flights[0].solicited);
  CHECK(pair.a.engine.stats().source_mode == FlowMode::kBuffered);
  CHECK(pair.z.engine.stats().sink_mode == FlowMode::kCombined);
  pair.Settle();
  CHECK(pair.z.engine.stats().sink_mode == FlowMode::kBuffered);
  CHECK_FALSE(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kCombined));  // the sink's now
  REQUIRE(pair.z.engine.ChangeMode(Half::kSink, FlowMode::kCombined));
  pair.z.Drain();
  CHECK(pair.z.Text() == "ModeChange bufs=24 mseq=0 ack=0 mode=1 s=1");
  pair.Settle();
  CHECK(pair.a.engine.stats().source_mode == FlowMode::kCombined);
  CHECK(pair.z.engine.stats().sink_mode == FlowMode::kCombined);
  CHECK(pair.a.engine.stats().sink_mode == FlowMode::kCombined);  // the other direction is untouched
}

TEST_CASE(
    "Requests: ChRcvBuf is obeyed: a smaller size at once, a larger one when the old buffers are used up") {
  ScriptedPeer peer({.options = {.receive_buffers = 4,
                                 .receive_buffer_size = 1000,
                                 .receive_buffer_limit = 2000,
                                 .receive_limit = 6000}});
  peer.Say(wire::ChRcvBuf{500});
  REQUIRE(peer.end.flights.size() == 1);
  CHECK_FALSE(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "ChRcvBufAck act_sz=500");
  CHECK(peer.end.receive_size == 500);
  peer.Say(wire::ChRcvBuf{100000});
  CHECK(peer.HearAll().find("ChRcvBufAck") == std::string::npos);
  CHECK(peer.end.receive_size == 2000);
  peer.Say(wire::Data{});
  peer.Say(wire::Data{});
  CHECK(peer.HearAll().find("ChRcvBufAck") == std::string::npos);
  peer.Say(wire::Data{});
  CHECK(peer.HearAll().find("ChRcvBufAck act_sz=2000") != std::string::npos);
  CHECK(peer.end.posted_sizes.front() == 2000);
  peer.Say(wire::ChRcvBuf{1});
  CHECK(peer.HearAll() == "ChRcvBufAck act_sz=37");
}

TEST_CASE("Requests: we ask for larger or smaller buffers, and are refused once for good") {
  ScriptedPeer peer;
  CHECK_FALSE(peer.engine().AskPeerBufferSize(1016));
  CHECK_FALSE(peer.engine().AskPeerBufferSize(10));
  REQUIRE(peer.engine().AskPeerBufferSize(5000));
  CHECK_FALSE(peer.engine().AskPeerBufferSize(6000));
  peer.end.Drain();
  CHECK_FALSE(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "ChRcvBuf des_sz=5000");
  CHECK(peer.engine().stats().remote_buffer_size == 1016);
  peer.Say(wire::ChRcvBufAck{4000});
  CHECK(peer.engine().stats().remote_buffer_size == 4000);
  peer.end.Send(std::string(4000, 'x'));
  CHECK(peer.HearAll() == "Data payload=3984, Data payload=16");
  REQUIRE(peer.engine().AskPeerBufferSize(500));
  peer.end.Drain();
  CHECK(peer.Hear() == "ChRcvBuf des_sz=500");
  CHECK(peer.engine().stats().remote_buffer_size == 500);  // at once
  peer.Say(wire::ChRcvBufAck{4000});
  CHECK(peer.engine().stats().remote_buffer_size == 4000);
  CHECK_FALSE(peer.engine().AskPeerBufferSize(500));
  REQUIRE(peer.engine().AskPeerBufferSize(5000));
  peer.end.Drain();
  peer.Hear();
  peer.Say(wire::ChRcvBufAck{4000});
  CHECK_FALSE(peer.engine().AskPeerBufferSize(5000));
  CHECK(peer.reason() == AbortReason::kNone);

  const auto answer = [](uint32_t asked, uint32_t actual) {
    ScriptedPeer other;
    REQUIRE(other.engine().AskPeerBufferSize(asked));
    other.end.Drain();
    other.Hear();
    other.Say(wire::ChRcvBufAck{actual});
    return other.reason();
  };
  CHECK(answer(2000, 1000) == AbortReason::kBadBufferSize);
  CHECK(answer(500, 400) == AbortReason::kBadBufferSize);
  CHECK(answer(500, 2000) == AbortReason::kBadBufferSize);
  CHECK(answer(2000, 3000) == AbortReason::kNone);
}

TEST_CASE("Requests: two ChRcvBuf that cross: the accepting peer's is answered, the other's comes again") {
  EnginePair pair({.receive_buffers = 3, .receive_buffer_size = 100},
                  {.receive_buffers = 3, .receive_buffer_size = 100});
  REQUIRE(pair.a.engine.AskPeerBufferSize(50));
  REQUIRE(pair.z.engine.AskPeerBufferSize(60));
  pair.a.Drain();
  pair.z.Drain();
  pair.Settle();
  CHECK(pair.a.engine.stats().local_buffer_size == 60);
  CHECK(pair.z.engine.stats().local_buffer_size == 50);
  CHECK(pair.a.engine.stats().remote_buffer_size == 50);
  CHECK(pair.z.engine.stats().remote_buffer_size == 60);
}

TEST_CASE("Requests: a size that is asked for again, because both asked at once, may still be refused") {
  const uint32_t asked = GENERATE(500u, 5000u);
  ScriptedPeer peer({.role = Role::kConnecting});
  REQUIRE(peer.engine().AskPeerBufferSize(asked));
  peer.end.Drain();
  peer.Say(wire::ChRcvBuf{100});  // left before ours was there
  const std::string question = "ChRcvBuf des_sz=" + std::to_string(asked);
  CHECK(peer.Hear() == question);
  CHECK(peer.HearAll() == "ChRcvBufAck act_sz=100, " + question);
  CHECK(peer.engine().stats().remote_buffer_size == std::min(asked, 1016u));
  peer.Say(wire::ChRcvBufAck{1016});
  CHECK(peer.reason() == AbortReason::kNone);
  CHECK(peer.engine().stats().remote_buffer_size == 1016);
  CHECK_FALSE(peer.engine().AskPeerBufferSize(asked));
}

TEST_CASE("Requests: a ChRcvBuf before the answer to the last one is a violation") {
  ScriptedPeer peer({.options = {.receive_buffers = 24, .receive_buffer_size = 60}});
  for (uint32_t i = 0; i < 2; ++i) {
    const auto bytes = Encode({{.bufs = 24, .len = 20, .mseq = MSeq(i)}, wire::ChRcvBuf{100}}, "");
    const Bytes piece(bytes);
    CHECK(peer.reason() == AbortReason::kNone);
    peer.engine().HandleReceive({.length = 20, .pieces = {&piece, 1}, .token = i});
  }
  CHECK(peer.reason() == AbortReason::kUnexpectedMid);
}

TEST_CASE("Requests: SuspComm is answered, and nothing is sent after it") {
  ScriptedPeer peer;
  peer.Say(wire::SuspComm{4711});
  REQUIRE(peer.end.flights.size() == 1);
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "SuspCommAck");
  CHECK_FALSE(peer.engine().suspended_port().has_value());
  CHECK_FALSE(peer.engine().writable());
  REQUIRE(peer.end.completions.size() == 1);
  peer.end.Complete();
  CHECK(peer.engine().suspended_port() == 4711);
  CHECK(peer.end.Send("kept", {.buffering = Buffering::kFull}) == 4);
  CHECK(peer.HearAll() == "nothing");
  peer.end.CloseSend();
  CHECK(peer.HearAll() == "nothing");
}

TEST_CASE("Requests: what is read after the SuspCommAck posts no receives, as no message can announce them") {
  ScriptedPeer peer(
      {.options = {.receive_buffers = 8, .receive_buffer_size = 1016, .receive_limit = 8 * 1016}});
  for (int i = 0; i < 4; ++i) peer.Say(wire::Data{}, std::string(1000, 'x'));
  while (peer.Hear() != "nothing") {
  }
  peer.Say(wire::SuspComm{4711});
  CHECK(peer.Hear() == "SuspCommAck");
  const uint64_t posted = peer.end.posted;
  CHECK(peer.end.Read(4000).size() == 4000);
  CHECK(peer.end.posted == posted);
  peer.end.CloseReceive();
  CHECK(peer.end.posted == posted);
  CHECK(peer.engine().IsConsistent());
}

TEST_CASE("Requests: nothing may follow a SuspComm") {
  ScriptedPeer peer;
  peer.Say(wire::SuspComm{4711});
  peer.Say(wire::Data{}, "x");
  CHECK(peer.reason() == AbortReason::kAfterSuspend);
}

TEST_CASE("Requests: answers to what was never asked are violations") {
  const auto say = [](const wire::Body& body) {
    ScriptedPeer peer;
    peer.Say(body);
    return peer.reason();
  };
  CHECK(say(wire::SendSm{}) == AbortReason::kUnexpectedMid);
  CHECK(say(wire::RdmaWrCompl{1}) == AbortReason::kUnexpectedMid);
  CHECK(say(wire::RdmaRdCompl{1}) == AbortReason::kUnexpectedMid);
  CHECK(say(wire::SinkCancelAck{}) == AbortReason::kUnexpectedMid);
  CHECK(say(wire::ChRcvBufAck{1000}) == AbortReason::kUnexpectedMid);
  CHECK(say(wire::SuspCommAck{}) == AbortReason::kUnexpectedMid);
  CHECK(say(wire::Hello{.max_adverts = 1, .loc_ird = 1, .loc_ord = 1}) == AbortReason::kUnexpectedMid);
  CHECK(say(wire::HelloAck{.max_adverts = 1, .loc_ird = 1, .loc_ord = 1}) == AbortReason::kUnexpectedMid);
}

TEST_CASE("Requests: an STag that was never advertised cannot be invalidated") {
  ScriptedPeer peer;
  peer.end.Receive(Encode({{.bufs = 24, .len = 17}, wire::Data{}}, "x"), nullptr, STag(5));
  CHECK(peer.reason() == AbortReason::kBadInvalidate);
}

TEST_CASE("Requests: messages that are none") {
  const auto say = [](const std::string& hex_mid) {
    ScriptedPeer peer;
    auto bytes = Encode({{.bufs = 24, .len = 16}, wire::Data{}}, "");
    bytes[3] = static_cast<std::byte>(std::stoul(hex_mid, nullptr, 16));
    peer.end.Receive(bytes);
    return peer.reason();
  };
  CHECK(say("0f") == AbortReason::kUnknownMid);
  CHECK(say("40") == AbortReason::kUnknownMid);
  CHECK(say("80") == AbortReason::kUnknownMid);
  ScriptedPeer mode;
  mode.Say(wire::ModeChange{.mode = 5});
  CHECK(mode.reason() == AbortReason::kBadModeChange);
  ScriptedPeer advert;
  advert.Say(Src(0));
  CHECK(advert.reason() == AbortReason::kBadAdvertisement);
}

}  // namespace sdp::engine
