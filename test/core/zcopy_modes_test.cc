// Zcopy and changes of mode, and what ends a connection with buffers on loan (SDP 8.2, 12, 13), ladder by
// ladder.
#include "test/core/zcopy_support.h"

namespace sdp::engine {

TEST_CASE(
    "Zcopy: leaving Pipelined Mode discards SinkAvails, and re-issues the SrcAvail that they had discarded") {
  EnginePair pair(kZcopy, kZcopy);
  MakePipelined(&pair.a);
  pair.Settle();
  auto data = Fill(5000, 15);
  std::vector<std::byte> out(4000);
  REQUIRE(pair.a.OfferSource(data));
  REQUIRE(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kCombined));
  pair.a.Drain();
  REQUIRE(pair.z.OfferSink(out, true));
  pair.z.Deliver(pair.a, nullptr);  // SrcAvail: discarded by the SinkAvail
  pair.a.Deliver(pair.z, nullptr);  // SinkAvail: ignored
  REQUIRE(pair.a.flights.size() == 2);
  pair.Settle();
  CHECK(pair.z.engine.stats().sink_mode == FlowMode::kCombined);
  CHECK(pair.z.SinkResult()->bytes == 0);
  CHECK(pair.z.Read(1000) == Text(Bytes(data).first(100)));
  std::vector<std::byte> rest(5000);
  REQUIRE(pair.z.OfferSink(rest, true));
  pair.Settle();
  CHECK(pair.z.SinkResult()->bytes == 4900);
  CHECK(pair.a.SourceResult()->bytes == 5000);
}

TEST_CASE(
    "Zcopy: a change to Buffered Mode waits for the SrcAvail, one out of Pipelined Mode for the write") {
  ScriptedPeer peer({.options = kZcopy});
  auto data = Fill(5000, 16);
  REQUIRE(peer.end.OfferSource(data));
  peer.Hear();
  REQUIRE(peer.engine().ChangeMode(Half::kSource, FlowMode::kBuffered));
  peer.end.Drain();
  CHECK(peer.HearAll() == "nothing");
  peer.Say(wire::SendSm{});
  CHECK(peer.Hear() == "ModeChange mode=0 s=0");
  CHECK(peer.HearAll() ==
        "Data payload=1000, Data payload=1000, Data payload=1000, Data payload=1000, Data payload=900");
  CHECK(peer.end.SourceResult()->bytes == 5000);

  ScriptedPeer writer({.options = kZcopy});
  MakePipelined(&writer.end);
  writer.Hear();
  writer.Say(Sink(3000));
  REQUIRE(writer.end.OfferSource(data));
  writer.Hear();
  REQUIRE(writer.engine().ChangeMode(Half::kSource, FlowMode::kCombined));
  writer.end.Drain();
  CHECK(writer.HearAll() == "nothing");
  writer.engine().HandleRdmaWriteCompleted(writer.last_rdma.read.id);
  writer.end.Drain();
  CHECK(writer.HearAll().substr(0, 70) ==
        "RdmaWrCompl len=3000, ModeChange mode=1 s=0, Data payload=1000, Data p");
}

TEST_CASE("Zcopy: REQ_PIPE is a hint that is followed if it is wanted") {
  Options options = kZcopy;
  options.prefer_pipelined = options.follow_hints = true;
  EnginePair pair(options, options);
  auto data = Fill(5000, 17);
  REQUIRE(pair.a.OfferSource(data));
  pair.Settle();
  pair.z.Read(1000);
  std::vector<std::byte> out(5000);
  REQUIRE(pair.z.OfferSink(out, false));
  pair.Settle();
  CHECK(pair.a.engine.stats().source_mode == FlowMode::kPipelined);
  CHECK(pair.z.engine.stats().sink_mode == FlowMode::kPipelined);
  CHECK(pair.z.engine.stats().source_mode == FlowMode::kCombined);
}

TEST_CASE("Zcopy: without REQ_PIPE, or with SendSm, who follows hints is in Combined Mode again") {
  Options options = kZcopy;
  options.follow_hints = true;
  ScriptedPeer reads({.options = options});
  auto data = Fill(5000, 20);
  MakePipelined(&reads.end);
  CHECK(reads.Hear() == "ModeChange mode=2 s=0");
  REQUIRE(reads.end.OfferSource(data));
  CHECK(reads.Hear().substr(0, 17) == "SrcAvail len=5000");
  reads.Say(wire::RdmaRdCompl{5000});
  CHECK(reads.Hear() == "ModeChange mode=1 s=0");
  CHECK(reads.engine().stats().source_mode == FlowMode::kCombined);

  ScriptedPeer copies({.options = options});
  MakePipelined(&copies.end);
  copies.Hear();
  REQUIRE(copies.end.OfferSource(data));
  copies.Hear();
  copies.Say(wire::SendSm{});
  CHECK(copies.Hear() == "ModeChange mode=1 s=0");
  CHECK(copies.HearAll().substr(0, 17) == "Data payload=1000");

  // Each half-connection by itself: who reads says what it wants of the one in which it reads, in either
  // message.
  Options wants = options;
  wants.begin_pipelined = wants.prefer_pipelined = true;
  EnginePair pair(wants, wants);
  pair.Settle();
  std::vector<std::byte> out(5000);
  REQUIRE(pair.z.OfferSink(out, true));
  pair.Settle();
  CHECK(pair.a.engine.sink_avail_bytes() == 5000);
  pair.a.engine.PreferPipelined(false);
  REQUIRE(pair.a.OfferSource(data));
  pair.Settle();
  CHECK(pair.z.SinkResult()->bytes == 5000);
  CHECK(pair.a.engine.sink_avail_bytes() == 0);
  CHECK(pair.a.engine.stats().source_mode == FlowMode::kPipelined);
  CHECK(pair.z.engine.stats().source_mode == FlowMode::kCombined);
}

TEST_CASE("Zcopy: whatever ends the connection gives the buffers back") {
  for (const int how : {0, 1, 2}) {
    ScriptedPeer peer({.options = kZcopy});
    peer.Say(kSinkPipelined);
    auto data = Fill(5000, 18);
    std::vector<std::byte> out(4000);
    REQUIRE(peer.end.OfferSource(data));
    REQUIRE(peer.end.OfferSink(out, true));
    peer.HearAll();
    if (how == 0) peer.end.LoseLink(false);
    if (how == 1) peer.end.Abort();
    if (how == 2) peer.Say(wire::RdmaRdCompl{100000});
    CHECK(peer.end.SourceResult()->bytes == 100);
    CHECK(peer.end.SinkResult()->bytes == 0);
  }
  // The end of the peer's stream ends a wait for it.
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(kSinkPipelined);
  std::vector<std::byte> out(4000);
  REQUIRE(peer.end.OfferSink(out, true));
  peer.HearAll();
  peer.Say(wire::DisConn{});
  CHECK(peer.end.SinkResult()->bytes == 0);
  CHECK(peer.engine().end_of_stream());
}

TEST_CASE(
    "Zcopy: a connection may begin in Pipelined Mode, the accepting peer's half with the first message") {
  Options options = kZcopy;
  options.begin_pipelined = true;
  for (const AckIn ack : {AckIn::kReply, AckIn::kSend}) {
    EnginePair pair(options, options, ack);
    if (ack == AckIn::kReply) CHECK(pair.z.flights.empty());
    pair.Settle();
    CHECK(pair.a.engine.stats().source_mode == FlowMode::kPipelined);
    CHECK(pair.z.engine.stats().source_mode == FlowMode::kPipelined);
    CHECK(pair.a.engine.stats().sink_mode == FlowMode::kPipelined);
    // Once: who leaves it stays there.
    REQUIRE(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kCombined));
    pair.a.Drain();
    pair.Settle();
    pair.z.Send("x");
    pair.Settle();
    CHECK(pair.a.engine.stats().source_mode == FlowMode::kCombined);
  }
}

TEST_CASE("Zcopy: SuspComm is answered when nothing is in process, and ends all advertisements") {
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(Src(5000), "x");
  peer.end.Read(10);
  std::vector<std::byte> out(2000);
  auto data = Fill(5000, 19);
  REQUIRE(peer.end.OfferSink(out, false));
  CHECK(peer.Hear() == "RdmaRead len=2000");
  REQUIRE(peer.end.OfferSource(data));
  peer.Hear();
  peer.Say(wire::SuspComm{4711});
  CHECK(peer.HearAll() == "nothing");
  CompleteRead(&peer);
  CHECK(peer.HearAll() == "RdmaRdCompl len=2000, SuspCommAck");
  CHECK(peer.end.SinkResult()->bytes == 2000);
  CHECK(peer.end.SourceResult()->bytes == 100);
}

}  // namespace sdp::engine
