// Read Zcopy, Write Zcopy and Transactions (SDP 9.2 to 9.5.5), ladder by ladder.
#include <catch2/catch.hpp>

#include "test/core/scripted_peer.h"

namespace sdp::engine {
namespace {

constexpr Options kZcopy{.receive_buffer_size = 1016,
                         .read_zcopy = true,
                         .source_threshold = 2000,
                         .sink_threshold = 1500,
                         .src_avail_payload = 100};
constexpr wire::ModeChange kSinkPipelined{.mode = wire::ModeChange::kPipelined, .receivers_source = false};
constexpr wire::ModeChange kSinkCombined{.mode = wire::ModeChange::kCombined, .receivers_source = false};

std::vector<std::byte> Fill(size_t size, uint8_t seed) {
  std::vector<std::byte> data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(seed + i * 7);
  return data;
}

wire::SrcAvail Src(uint32_t len) { return {.len = len, .stag = STag(7), .va = 0x1000}; }
wire::SinkAvail Sink(uint32_t len, uint32_t non_discards = 0) {
  return {.len = len, .stag = STag(8), .va = 0x2000, .non_discards = non_discards};
}

void MakePipelined(End* end) {
  REQUIRE(end->engine.ChangeMode(Half::kSource, FlowMode::kPipelined));
  end->Drain();
}

// The engine is told that its oldest read is done.
void CompleteRead(ScriptedPeer* peer) {
  REQUIRE(peer->last_rdma.kind == Flight::Kind::kReadRequest);
  --peer->end.reads_outstanding;
  peer->engine().HandleRdmaReadCompleted(peer->last_rdma.read.id);
  peer->end.Drain();
}

std::string Text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

TEST_CASE("Zcopy: Read Zcopy in Combined Mode moves a buffer with one SrcAvail and one RdmaRdCompl") {
  EnginePair pair(kZcopy, kZcopy);
  auto data = Fill(50000, 1);
  CHECK(pair.a.engine.wants_source(50000));
  CHECK_FALSE(pair.a.engine.wants_source(2000));
  REQUIRE(pair.a.OfferSource(data));
  CHECK(pair.a.engine.source_offered());
  CHECK_FALSE(pair.a.engine.writable());
  CHECK(pair.a.Send("behind") == 0);
  CHECK(pair.a.Peek().payload_size() == 100);
  CHECK_FALSE(pair.a.flights[0].solicited);
  pair.Settle();
  CHECK(pair.z.engine.advertised_bytes() == 49900);
  CHECK(pair.z.Read(1000) == Text(Bytes(data).first(100)));
  CHECK(pair.z.engine.sink_wish(49900) == SinkWish::kRead);
  std::vector<std::byte> out(60000);
  REQUIRE(pair.z.OfferSink(out, false));
  pair.Settle();
  const auto sink = pair.z.SinkResult();
  REQUIRE(sink);
  CHECK(sink->bytes == 49900);
  CHECK(std::equal(data.begin() + 100, data.end(), out.begin()));
  const auto source = pair.a.SourceResult();
  REQUIRE(source);
  CHECK(source->bytes == 50000);
  CHECK(source->invalidated);
  CHECK(pair.a.regions.empty());
  CHECK(pair.z.regions.empty());
  CHECK(pair.a.engine.stats().read_zcopy_bytes_out == 49900);
  CHECK(pair.z.engine.stats().read_zcopy_bytes_in == 49900);
  CHECK(pair.a.engine.writable());
}

TEST_CASE("Zcopy: what is sent behind a buffer that was moved waits in the send buffer, its mark with it") {
  EnginePair pair(kZcopy, kZcopy);
  pair.z.engine.SetOutOfBandInline(true);
  auto data = Fill(10000, 3);
  const auto sent = data;
  REQUIRE(pair.a.OfferSource(data));
  pair.Settle();
  CHECK(pair.a.Send("behind") == 0);
  const uint64_t edge = pair.a.engine.write_edge();
  REQUIRE(pair.a.MoveSource());
  CHECK(pair.a.engine.writable());
  CHECK(pair.a.engine.write_edge() == edge + 1);
  CHECK(pair.a.engine.offered_bytes() == 9900);
  pair.a.RevokeSource();  // nobody waits for it
  CHECK(pair.a.Send("behind") == 6);
  CHECK(pair.a.Send("!", {.out_of_band = true}) == 1);
  CHECK(pair.a.engine.buffered_bytes() == 7);
  pair.a.CloseSend();
  pair.Settle();
  CHECK(pair.z.engine.oob_pending());
  std::string got = pair.z.Read(1000);
  std::vector<std::byte> out(4000);
  REQUIRE(pair.z.OfferSink(out, false));
  pair.Settle();
  CHECK(pair.z.SinkResult()->bytes == 4000);
  got += Text(out);
  pair.z.ForceBcopy();
  for (int i = 0; i < 20; ++i) {
    pair.Settle();
    got += pair.z.Read(1000);
  }
  CHECK(got == Text(sent) + "behind" + "!");
  CHECK(pair.z.engine.end_of_stream());
  CHECK(pair.a.SourceResult()->bytes == 10000);
}

TEST_CASE("Zcopy: several buffers empty one SrcAvail, SendSm fetches the rest") {
  EnginePair pair(kZcopy, kZcopy);
  auto data = Fill(10000, 2);
  REQUIRE(pair.a.OfferSource(data));
  pair.Settle();
  std::string got = pair.z.Read(1000);
  for (int i = 0; i < 2; ++i) {
    std::vector<std::byte> out(3000);
    REQUIRE(pair.z.OfferSink(out, false));
    pair.Settle();
    const auto result = pair.z.SinkResult();
    REQUIRE(result);
    CHECK(result->bytes == 3000);
    CHECK_FALSE(result->invalidated);
    got += Text(out);
    CHECK_FALSE(pair.a.SourceResult().has_value());
  }
  CHECK(pair.z.engine.advertised_bytes() == 3900);
  pair.z.ForceBcopy();
  REQUIRE(pair.z.flights.size() == 2);
  CHECK(pair.z.Text().find("RdmaRdCompl") == 0);
  CHECK(pair.z.Peek().body == wire::Body(wire::RdmaRdCompl{6000}));
  CHECK_FALSE(pair.z.flights[0].invalidate);
  CHECK(ToString(*wire::Parse(pair.z.flights[1].bytes, pair.z.flights[1].bytes.size())).find("SendSm") == 0);
  pair.Settle();
  got += pair.z.Read(10000);
  CHECK(got == Text(data));
  const auto result = pair.a.SourceResult();
  REQUIRE(result);
  CHECK(result->bytes == 10000);
  CHECK_FALSE(result->invalidated);
}

TEST_CASE("Zcopy: RDMA Reads respect ORD and read_size, and RdmaRdCompl waits for all of them") {
  Options options = kZcopy;
  options.read_size = 1000;
  options.ord = 2;
  ScriptedPeer peer({.options = options});
  peer.Say(Src(5000), "x");
  peer.end.Read(10);
  std::vector<std::byte> out(6000);
  REQUIRE(peer.end.OfferSink(out, false));
  CHECK(peer.Hear() == "RdmaRead len=1000");
  CHECK(peer.last_rdma.stag == STag(7));
  CHECK(peer.last_rdma.va == 0x1001);
  Flight first = peer.last_rdma;
  CHECK(peer.Hear() == "RdmaRead len=1000");
  CHECK(peer.last_rdma.va == 0x1001 + 1000);
  CHECK(peer.HearAll() == "nothing");
  for (const char* next : {"RdmaRead len=1000", "RdmaRead len=1000", "RdmaRead len=999"}) {
    std::swap(first, peer.last_rdma);
    CompleteRead(&peer);
    CHECK(peer.Hear() == next);
  }
  std::swap(first, peer.last_rdma);
  CompleteRead(&peer);
  CHECK(peer.HearAll() == "nothing");
  peer.last_rdma = first;
  CompleteRead(&peer);
  REQUIRE(peer.end.flights.size() == 1);
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.end.flights[0].invalidate == STag(7));
  CHECK(peer.Hear() == "RdmaRdCompl len=4999");
  CHECK(peer.end.SinkResult()->bytes == 4999);
}

TEST_CASE("Zcopy: the Data Source checks RdmaRdCompl and the invalidated STag") {
  const auto say = [](uint32_t len, std::optional<uint32_t> stag) {
    ScriptedPeer peer({.options = kZcopy});
    auto data = Fill(5000, 3);
    REQUIRE(peer.end.OfferSource(data));
    CHECK(peer.Hear() == "SrcAvail len=5000 stag=100 va=105906176 payload=100");
    const auto bytes = Encode({{.bufs = 24, .len = 20}, wire::RdmaRdCompl{len}}, "");
    peer.end.Receive(bytes, nullptr, stag ? std::optional(STag(*stag)) : std::nullopt);
    return peer.reason();
  };
  CHECK(say(4900, 100) == AbortReason::kNone);
  CHECK(say(4900, std::nullopt) == AbortReason::kNone);
  CHECK(say(1000, std::nullopt) == AbortReason::kNone);
  CHECK(say(4900, 101) == AbortReason::kBadInvalidate);
  CHECK(say(4901, std::nullopt) == AbortReason::kBadCompletion);
  CHECK(say(5000, std::nullopt) == AbortReason::kBadCompletion);
}

TEST_CASE(
    "Zcopy: a revoked send buffer is given back by SrcAvailCancel and its SendSm, with an exact count") {
  ScriptedPeer peer({.options = kZcopy});
  auto data = Fill(5000, 4);
  REQUIRE(peer.end.OfferSource(data));
  peer.Hear();
  peer.end.RevokeSource();
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "SrcAvailCancel");
  CHECK_FALSE(peer.end.SourceResult().has_value());
  peer.Say(wire::RdmaRdCompl{1000});
  CHECK_FALSE(peer.end.SourceResult().has_value());
  peer.Say(wire::SendSm{});
  const auto result = peer.end.SourceResult();
  REQUIRE(result);
  CHECK(result->bytes == 1100);
  CHECK(peer.HearAll() == "nothing");
  CHECK(peer.end.Send("next") == 4);
}

TEST_CASE(
    "Zcopy: a SendSm that crosses the SrcAvailCancel still gets its data, though the buffer is given back") {
  ScriptedPeer peer({.options = kZcopy});
  auto data = Fill(3000, 5);
  REQUIRE(peer.end.OfferSource(data));
  peer.Hear();
  const uint32_t heard = peer.heard;
  peer.end.RevokeSource();
  peer.Hear();
  peer.heard = heard;  // the peer has not seen the cancel
  peer.Say(wire::SendSm{});
  const auto result = peer.end.SourceResult();
  REQUIRE(result);
  CHECK(result->bytes == 3000);
  CHECK(peer.HearAll() == "Data payload=1000, Data payload=1000, Data payload=900");
}

TEST_CASE("Zcopy: a buffer that was not advertised comes back at once") {
  ScriptedPeer peer({.options = kZcopy, .bufs = 3});
  peer.repost = false;
  peer.end.Send("takes the only credit");
  auto data = Fill(5000, 6);
  REQUIRE(peer.end.OfferSource(data));
  peer.end.RevokeSource();
  CHECK(peer.end.SourceResult()->bytes == 0);
  std::vector<std::byte> out(5000);
  REQUIRE(peer.end.OfferSink(out, false));
  peer.end.RevokeSink();
  CHECK(peer.end.SinkResult()->bytes == 0);
  CHECK_FALSE(peer.end.SinkResult().has_value());
}

TEST_CASE("Zcopy: SrcAvailCancel waits for the reads in process, and MSeqAck waits with it") {
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(Src(5000), "x");
  peer.end.Read(10);
  std::vector<std::byte> out(2000);
  REQUIRE(peer.end.OfferSink(out, false));
  CHECK(peer.Hear() == "RdmaRead len=2000");
  peer.Say(wire::SrcAvailCancel{});
  peer.end.Send("meanwhile");
  CHECK(peer.Take().bsdh.mseq_ack.value() == 0);  // the SrcAvail, not the cancel
  CompleteRead(&peer);
  CHECK(peer.end.SinkResult()->bytes == 2000);
  const wire::Message completed = peer.Take();
  CHECK(completed.body == wire::Body(wire::RdmaRdCompl{2000}));
  CHECK(completed.bsdh.mseq_ack.value() == 0);
  const wire::Message send_sm = peer.Take();
  CHECK(send_sm.body == wire::Body(wire::SendSm{}));
  CHECK(send_sm.bsdh.mseq_ack.value() == 1);
  CHECK(peer.HearAll() == "nothing");
  // Read to the end: nothing was cancelled, so no SendSm.
  peer.Say(Src(100), "y");
  peer.end.Read(10);
  REQUIRE(peer.end.OfferSink(out, false));
  CHECK(peer.Hear() == "RdmaRead len=99");
  peer.Say(wire::SrcAvailCancel{});
  CompleteRead(&peer);
  CHECK(peer.HearAll() == "RdmaRdCompl len=99");
}

TEST_CASE("Zcopy: both sides advertise and nobody receives: both are forced to Bcopy") {
  EnginePair pair(kZcopy, kZcopy);
  auto to_z = Fill(5000, 7), to_a = Fill(6000, 8);
  REQUIRE(pair.a.OfferSource(to_z));
  REQUIRE(pair.z.OfferSource(to_a));
  pair.Settle();
  CHECK(pair.a.SourceResult()->bytes == 5000);
  CHECK(pair.z.SourceResult()->bytes == 6000);
  CHECK(pair.z.Read(10000) == Text(to_z));
  CHECK(pair.a.Read(10000) == Text(to_a));
}

TEST_CASE("Zcopy: Pipelined Mode advertises without payload") {
  EnginePair pair(kZcopy, kZcopy);
  MakePipelined(&pair.a);
  pair.Settle();
  auto data = Fill(5000, 9);
  REQUIRE(pair.a.OfferSource(data));
  CHECK(pair.a.Peek().payload_size() == 0);
  pair.Settle();
  CHECK(pair.z.engine.readable_bytes() == 0);
  // 11.3, 2a: it is read, not answered with a SinkAvail.
  std::vector<std::byte> out(5000);
  REQUIRE(pair.z.OfferSink(out, true));
  CHECK(pair.z.Text() == "RdmaRead len=5000");
  pair.Settle();
  CHECK(pair.z.SinkResult()->bytes == 5000);
  CHECK(out == data);
}

TEST_CASE("Zcopy: Write Zcopy fills an advertised buffer, RdmaWrCompl follows the write's completion") {
  EnginePair pair(kZcopy, kZcopy);
  MakePipelined(&pair.a);
  pair.Settle();
  CHECK(pair.z.engine.sink_wish(8000) == SinkWish::kAdvertise);
  CHECK(pair.z.engine.sink_wish(1500) == SinkWish::kNothing);
  std::vector<std::byte> out(8000);
  REQUIRE(pair.z.OfferSink(out, true));
  CHECK(pair.z.Text().find("SinkAvail") == 0);
  pair.Settle();
  auto data = Fill(5000, 10);
  REQUIRE(pair.a.OfferSource(data));
  CHECK(pair.a.flights.size() == 1);
  CHECK(pair.a.Text() == "RdmaWrite len=5000");
  pair.a.Complete();
  REQUIRE(pair.a.flights.size() == 2);
  CHECK(pair.a.flights[1].solicited);
  CHECK(pair.a.SourceResult()->bytes == 5000);
  pair.Settle();
  const auto result = pair.z.SinkResult();
  REQUIRE(result);
  CHECK(result->bytes == 5000);
  CHECK(result->invalidated);
  CHECK(std::equal(data.begin(), data.end(), out.begin()));
  CHECK(pair.a.engine.stats().write_zcopy_bytes_out == 5000);
  CHECK(pair.z.engine.stats().write_zcopy_bytes_in == 5000);
}

TEST_CASE("Zcopy: a buffer not larger than our Private Buffers is never advertised") {
  Options options = kZcopy;
  options.sink_threshold = 0;
  EnginePair pair(kZcopy, options);
  MakePipelined(&pair.a);
  pair.Settle();
  std::vector<std::byte> out(1016);
  CHECK(pair.z.engine.sink_wish(1016) == SinkWish::kNothing);
  REQUIRE(pair.z.OfferSink(out, true));
  CHECK(pair.z.Text() == "nothing");
}

TEST_CASE("Zcopy: SrcAvail and SinkAvail cross, and Write Zcopy wins") {
  EnginePair pair(kZcopy, kZcopy);
  MakePipelined(&pair.a);
  pair.Settle();
  auto data = Fill(9000, 11);
  std::vector<std::byte> out(4000);
  REQUIRE(pair.a.OfferSource(data));
  REQUIRE(pair.z.OfferSink(out, true));
  pair.z.Deliver(pair.a, nullptr);  // ignored
  CHECK(pair.z.engine.advertised_bytes() == 0);
  pair.a.Deliver(pair.z, nullptr);
  CHECK(pair.a.Text() == "RdmaWrite len=4000");
  pair.Settle();
  CHECK(pair.z.SinkResult()->bytes == 4000);
  // What is left is advertised anew.
  CHECK(pair.z.engine.advertised_bytes() == 5000);
  std::vector<std::byte> rest(5000);
  REQUIRE(pair.z.OfferSink(rest, true));
  pair.Settle();
  CHECK(pair.z.SinkResult()->bytes == 5000);
  out.insert(out.end(), rest.begin(), rest.end());
  CHECK(out == data);
  CHECK(pair.a.SourceResult()->bytes == 9000);
}

TEST_CASE("Zcopy: a stale SinkAvail does not discard the SrcAvail that followed the data") {
  EnginePair pair(kZcopy, kZcopy);
  MakePipelined(&pair.a);
  pair.Settle();
  std::vector<std::byte> out(4000);
  pair.a.Send("small");
  auto data = Fill(3000, 12);
  REQUIRE(pair.a.OfferSource(data));
  REQUIRE(pair.z.OfferSink(out, true));
  pair.Settle();
  CHECK(pair.z.SinkResult()->bytes == 0);
  CHECK(pair.z.Read(100) == "small");
  CHECK(pair.z.engine.advertised_bytes() == 3000);
  REQUIRE(pair.z.OfferSink(out, true));
  pair.Settle();
  CHECK(pair.z.SinkResult()->bytes == 3000);
  CHECK(pair.a.SourceResult()->bytes == 3000);
}

TEST_CASE("Zcopy: NonDiscards counts the messages that discarded nothing") {
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(kSinkPipelined);
  peer.Say(wire::Data{}, "one");
  peer.Say(wire::Data{}, "two");
  peer.end.Read(100);
  std::vector<std::byte> out(4000);
  REQUIRE(peer.end.OfferSink(out, true));
  CHECK(peer.Hear() == "SinkAvail len=4000 stag=100 va=105906176 non_discards=2");
  peer.Say(wire::Data{}, "three");
  CHECK(peer.end.SinkResult()->bytes == 0);
  CHECK(peer.end.Read(100) == "three");
  REQUIRE(peer.end.OfferSink(out, true));
  CHECK(peer.Hear() == "SinkAvail len=4000 stag=101 va=106954752 non_discards=2");
  peer.Say(wire::RdmaWrCompl{4000});
  CHECK(peer.end.SinkResult()->bytes == 4000);
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Zcopy: SinkAvailCancel ends with SinkCancelAck, RdmaWrCompl or data") {
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(kSinkPipelined);
  std::vector<std::byte> out(4000);
  REQUIRE(peer.end.OfferSink(out, true));
  peer.Hear();
  peer.end.RevokeSink();
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "SinkAvailCancel");
  CHECK_FALSE(peer.end.SinkResult().has_value());
  peer.Say(wire::SinkCancelAck{});
  CHECK(peer.end.SinkResult()->bytes == 0);

  // In process: the write is completed, then the rest is cancelled, and only then is there a next one.
  REQUIRE(peer.end.OfferSink(out, true));
  peer.Hear();
  peer.end.RevokeSink();
  peer.Hear();
  peer.Say(wire::RdmaWrCompl{1000});
  CHECK(peer.end.SinkResult()->bytes == 1000);
  REQUIRE(peer.end.OfferSink(out, true));
  CHECK(peer.HearAll() == "nothing");
  peer.Say(wire::SinkCancelAck{});
  CHECK(peer.Hear().substr(0, 9) == "SinkAvail");

  // Crossed by a write that was complete before: the cancel finds nothing.
  const uint32_t heard = peer.heard;
  peer.end.RevokeSink();
  peer.Hear();
  std::swap(peer.heard, const_cast<uint32_t&>(heard));
  peer.Say(wire::RdmaWrCompl{10});
  peer.heard = heard;
  CHECK(peer.end.SinkResult()->bytes == 10);
  REQUIRE(peer.end.OfferSink(out, true));
  CHECK(peer.Hear().substr(0, 9) == "SinkAvail");

  peer.end.RevokeSink();
  peer.Hear();
  peer.Say(wire::Data{}, "data");
  CHECK(peer.end.SinkResult()->bytes == 0);
  CHECK(peer.end.Read(10) == "data");
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Zcopy: a SinkAvailCancel meets a write in process") {
  ScriptedPeer peer({.options = kZcopy});
  MakePipelined(&peer.end);
  peer.Hear();
  peer.Say(Sink(5000));
  auto data = Fill(3000, 13);
  REQUIRE(peer.end.OfferSource(data));
  CHECK(peer.Hear() == "RdmaWrite len=3000");
  peer.Say(wire::SinkAvailCancel{});
  CHECK(peer.HearAll() == "nothing");
  peer.engine().HandleRdmaWriteCompleted(peer.last_rdma.read.id);
  peer.end.Drain();
  CHECK(peer.end.SourceResult()->bytes == 3000);
  CHECK(peer.HearAll() == "RdmaWrCompl len=3000, SinkCancelAck");
}

TEST_CASE("Zcopy: RdmaWrCompl is checked") {
  const auto say = [](uint32_t len, std::optional<uint32_t> stag) {
    ScriptedPeer peer({.options = kZcopy});
    peer.Say(kSinkPipelined);
    std::vector<std::byte> out(4000);
    REQUIRE(peer.end.OfferSink(out, true));
    const auto bytes = Encode({{.bufs = 24, .len = 20, .mseq = MSeq(1)}, wire::RdmaWrCompl{len}}, "");
    peer.end.Receive(bytes, nullptr, stag ? std::optional(STag(*stag)) : std::nullopt);
    return peer.reason();
  };
  CHECK(say(4000, 100) == AbortReason::kNone);
  CHECK(say(4001, 100) == AbortReason::kBadCompletion);
  CHECK(say(4000, 99) == AbortReason::kBadInvalidate);
}

TEST_CASE("Zcopy: a held command travels in the SinkAvail of its reply") {
  EnginePair pair(kZcopy, kZcopy);
  MakePipelined(&pair.a);
  MakePipelined(&pair.z);
  pair.Settle();
  CHECK(pair.a.Send("command", {.hold = true}) == 7);
  CHECK(pair.a.Text() == "nothing");
  std::vector<std::byte> out(4000);
  REQUIRE(pair.a.OfferSink(out, true));
  REQUIRE(pair.a.flights.size() == 1);
  CHECK(pair.a.Text().find("SinkAvail") == 0);
  CHECK(pair.a.Peek().payload_size() == 7);
  pair.Settle();
  CHECK(pair.z.Read(100) == "command");
  auto reply = Fill(3000, 14);
  REQUIRE(pair.z.OfferSource(reply));
  CHECK(pair.z.Text() == "RdmaWrite len=3000");
  pair.Settle();
  CHECK(pair.a.SinkResult()->bytes == 3000);
  CHECK(pair.a.engine.stats().transaction_bytes_out == 7);
  CHECK(pair.z.engine.stats().transaction_bytes_in == 7);
  // Without a reply to wait for it leaves with the next send.
  CHECK(pair.z.SourceResult()->bytes == 3000);
  CHECK(pair.a.Send("command", {.hold = true}) == 7);
  CHECK(pair.a.Send("", {}) == 0);
  CHECK(pair.a.Peek().payload_size() == 7);
}

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
  options.prefer_pipelined = true;
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

TEST_CASE("Zcopy: a connection may begin in Pipelined Mode, the accepting peer's half with the first message") {
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
