// Write Zcopy and Transactions, their revocation, and adverts that cross or grow stale (SDP 9.3
// to 9.5.5, 11.3), ladder by ladder.
#include "test/core/zcopy_support.h"

namespace sdp::engine {

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

TEST_CASE(
    "Zcopy: after RefuseReceive what is written into a buffer that was needed back is dropped and told of") {
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(kSinkPipelined);
  std::vector<std::byte> out(4000);
  REQUIRE(peer.end.OfferSink(out, true));
  peer.Hear();
  CHECK(peer.end.MoveSink() == 0u);
  peer.engine().RefuseReceive();
  peer.end.Drain();
  CHECK(peer.Hear() == "SinkAvailCancel");
  const bool written = GENERATE(false, true);
  if (written) peer.Say(wire::RdmaWrCompl{1000});
  peer.Say(wire::SinkCancelAck{});
  CHECK(peer.engine().refused_data() == written);
  CHECK(peer.engine().readable_bytes() == 0);
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Zcopy: an advertised buffer needed back: what is written all the same is read later") {
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(kSinkPipelined);
  std::vector<std::byte> out(4000);
  REQUIRE(peer.end.OfferSink(out, true));
  peer.Hear();
  CHECK(peer.end.MoveSink() == 0u);
  CHECK(peer.Hear() == "SinkAvailCancel");
  SECTION("nothing was") {
    peer.Say(wire::SinkCancelAck{});
    CHECK(peer.engine().readable_bytes() == 0);
  }
  SECTION("a part was") {
    const MutableBytes copy = peer.end.regions.at(peer.end.sink_stag.value()).memory;
    std::fill_n(copy.begin(), 1000, std::byte{'a'});
    peer.Say(wire::RdmaWrCompl{1000});
    peer.Say(wire::SinkCancelAck{});
    CHECK(peer.end.Read(5000) == std::string(1000, 'a'));
  }
  SECTION("data came instead") {
    peer.Say(wire::Data{}, "data");
    CHECK(peer.end.Read(10) == "data");
  }
  CHECK(peer.end.SinkResult().has_value());
  REQUIRE(peer.end.OfferSink(out, true));
  CHECK(peer.Hear().substr(0, 9) == "SinkAvail");
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

TEST_CASE("Zcopy: a command sent behind the offer of memory for its reply travels in the SinkAvail") {
  EnginePair pair(kZcopy, kZcopy);
  MakePipelined(&pair.a);
  MakePipelined(&pair.z);
  pair.Settle();
  std::vector<std::byte> out(4000);
  const auto command = Fill(7, 15);
  REQUIRE(pair.a.OfferSink(out, true, command));
  CHECK(pair.a.question_taken == 7);
  REQUIRE(pair.a.flights.size() == 1);
  CHECK(pair.a.Text().find("SinkAvail") == 0);
  CHECK(pair.a.Peek().payload_size() == 7);
  pair.Settle();
  CHECK(pair.z.Read(100) == Text(command));
  auto reply = Fill(3000, 14);
  REQUIRE(pair.z.OfferSource(reply));
  CHECK(pair.z.Text() == "RdmaWrite len=3000");
  pair.Settle();
  CHECK(pair.a.SinkResult()->bytes == 3000);
  CHECK(pair.a.engine.stats().transaction_bytes_out == 7);
  CHECK(pair.z.engine.stats().transaction_bytes_in == 7);
}

TEST_CASE("Zcopy: a command that does not fit into the SinkAvail follows it") {
  EnginePair pair(kZcopy, kZcopy);
  MakePipelined(&pair.a);
  MakePipelined(&pair.z);
  pair.Settle();
  std::vector<std::byte> out(4000);
  const uint32_t data = pair.a.engine.stats().remote_buffer_size - wire::Bsdh::kSize;
  const auto command = Fill(data - wire::SinkAvail::kSize + 1, 16);
  REQUIRE(pair.a.OfferSink(out, true, command));
  CHECK(pair.a.question_taken == command.size());
  REQUIRE(pair.a.flights.size() == 2);
  CHECK(pair.a.Text().find("SinkAvail") == 0);
  CHECK(pair.a.Peek().payload_size() == 0);
  pair.Settle();
  CHECK(pair.z.Read(command.size()) == Text(command));
  CHECK(pair.a.engine.stats().transaction_bytes_out == 0);
}

TEST_CASE("Zcopy: what is sent behind an offer that is not advertised leaves by itself") {
  EnginePair pair(kZcopy, kZcopy);
  std::vector<std::byte> out(4000);
  const auto command = Fill(7, 15);
  REQUIRE(pair.a.OfferSink(out, true, command));  // in Combined Mode
  CHECK(pair.a.question_taken == 7);
  REQUIRE(pair.a.flights.size() == 1);
  CHECK(pair.a.Text().find("Data") == 0);
  CHECK(pair.a.engine.stats().buffered_copies == 0);
}

}  // namespace sdp::engine
