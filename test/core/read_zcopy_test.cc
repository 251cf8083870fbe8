// Read Zcopy and its revocation (SDP 9.2, 9.5.4), ladder by ladder.
#include "test/core/zcopy_support.h"

namespace sdp::engine {

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

TEST_CASE(
    "Zcopy: a copy that is revoked follows as Data when the peer has answered, ahead of what was sent behind "
    "it") {
  ScriptedPeer peer({.options = kZcopy});
  auto data = Fill(5000, 7);
  const auto sent = data;
  REQUIRE(peer.end.OfferSource(data));
  std::string got = (peer.Hear(), peer.payload());
  REQUIRE(peer.end.MoveSource());
  CHECK(peer.end.Send("behind") == 6);
  peer.end.RevokeSource();
  CHECK(peer.Hear() == "SrcAvailCancel");
  CHECK(peer.HearAll() == "nothing");
  peer.Say(wire::RdmaRdCompl{1000});
  got += Text(Bytes(sent).subspan(100, 1000));
  CHECK_FALSE(peer.end.SourceResult().has_value());
  CHECK_FALSE(peer.engine().freezable());
  peer.Say(wire::SendSm{});
  const auto result = peer.end.SourceResult();
  REQUIRE(result);
  CHECK(result->bytes == 5000);
  CHECK(peer.engine().freezable());
  while (peer.Hear() != "nothing") got += peer.payload();
  CHECK(got == Text(sent) + "behind");
}

// The peer has asked for it as Data, and reads nothing.
TEST_CASE(
    "Zcopy: a copy that is revoked is back at once where only credit is missing, and the engine can be "
    "frozen") {
  Options few = kZcopy;
  few.receive_buffers = 4;
  few.receive_limit = 4 * 1016;
  EnginePair pair(kZcopy, few);
  auto data = Fill(10000, 8);
  const auto sent = data;
  REQUIRE(pair.a.OfferSource(data));
  pair.Settle();
  REQUIRE(pair.a.MoveSource());
  CHECK(pair.a.Send("behind") == 6);
  pair.z.ForceBcopy();
  pair.Settle();
  CHECK(pair.a.engine.advertised_out() == 0);
  CHECK(pair.a.engine.offered_bytes() != 0);
  CHECK_FALSE(pair.a.engine.freezable());
  pair.a.RevokeSource();
  const auto result = pair.a.SourceResult();
  REQUIRE(result);
  CHECK(result->bytes == 10000);
  REQUIRE(pair.a.Refreeze());
  std::string got;
  for (int i = 0; i < 30; ++i) {
    got += pair.z.Read(1000);
    pair.Settle();
  }
  CHECK(got == Text(sent) + "behind");
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

TEST_CASE("Zcopy: a receive buffer needed back while it is read into: what comes later is read later") {
  Options options = kZcopy;
  options.read_size = 1000;
  options.ord = 2;
  ScriptedPeer peer({.options = options});
  peer.Say(Src(5001), "x");
  peer.end.Read(10);
  std::vector<std::byte> out(6000);
  REQUIRE(peer.end.OfferSink(out, false));
  std::vector<Flight> reads;
  const auto hear_read = [&] {
    REQUIRE(peer.Hear() == "RdmaRead len=1000");
    reads.push_back(peer.last_rdma);
  };
  const auto complete = [&](size_t i) {
    peer.last_rdma = reads[i];
    CompleteRead(&peer);
  };
  hear_read();
  hear_read();
  complete(0);
  hear_read();
  CHECK(peer.end.MoveSink() == 1000u);
  const MutableBytes copy = peer.end.regions.at(peer.end.sink_stag.value()).memory;
  std::fill_n(copy.begin() + 1000, 1000, std::byte{'a'});
  std::fill_n(copy.begin() + 2000, 1000, std::byte{'b'});
  complete(1);
  CHECK(peer.engine().readable_bytes() == 1000);
  CHECK_FALSE(peer.end.SinkResult().has_value());
  CHECK(peer.HearAll() == "nothing");
  complete(2);
  CHECK(peer.end.SinkResult().has_value());
  CHECK(peer.end.Read(5000) == std::string(1000, 'a') + std::string(1000, 'b'));
  CHECK(peer.engine().advertised_bytes() == 2000);
  peer.end.ForceBcopy();
  CHECK(peer.HearAll() == "RdmaRdCompl len=3000, SendSm");
}

TEST_CASE(
    "Zcopy: after RefuseReceive what comes into a receive buffer that was needed back is dropped and told "
    "of") {
  const bool closes = GENERATE(false, true);
  Options options = kZcopy;
  options.read_size = 1000;
  ScriptedPeer peer({.options = options});
  peer.Say(Src(5001), "x");
  peer.end.Read(10);
  std::vector<std::byte> out(6000);
  REQUIRE(peer.end.OfferSink(out, false));
  REQUIRE(peer.Hear() == "RdmaRead len=1000");
  CHECK(peer.end.MoveSink() == 0u);
  if (closes) {
    peer.end.CloseReceive();
  } else {
    peer.engine().RefuseReceive();
    peer.end.Drain();
  }
  CHECK_FALSE(peer.engine().refused_data());
  CompleteRead(&peer);
  CHECK(peer.engine().refused_data());
  CHECK(peer.engine().readable_bytes() == 0);
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

}  // namespace sdp::engine
