// Freeze and thaw: a connection goes on in another engine, and bytes from anywhere do no harm.
#include <catch2/catch.hpp>

#include "test/core/scripted_peer.h"

namespace sdp::engine {

TEST_CASE("Freeze: unread data, unsent data and every counter come along") {
  EnginePair pair({.receive_buffer_size = 116}, {.receive_buffer_size = 116, .receive_limit = 116 * 4});
  pair.a.Send("received");
  pair.a.Send(" in two messages");
  pair.Settle();
  // More than credit allows: the rest is buffered.
  const std::string rest(1000, 'x');
  CHECK(pair.a.Send(rest, {.buffering = Buffering::kFull}) == 1000);
  CHECK(pair.a.engine.buffered_bytes() != 0);
  pair.a.CloseSend();
  const Stats before = pair.a.engine.stats();
  pair.a.Refreeze();
  pair.z.Refreeze();
  CHECK(pair.a.engine.stats().messages_out == before.messages_out);
  CHECK(pair.a.engine.stats().send_queue == before.send_queue);
  CHECK(pair.a.engine.state() == State::kSendClosed);
  CHECK(pair.z.engine.readable_bytes() == 24);
  CHECK(pair.z.Read(10, {.peek = true}) == "received i");
  std::string all;
  for (int i = 0; i < 100 && !pair.z.engine.end_of_stream(); ++i) {
    pair.Settle();
    all += pair.z.Read(33);
    pair.z.Refreeze();
    pair.a.Refreeze();
  }
  CHECK(all == "received in two messages" + rest);
  pair.z.CloseSend();
  pair.Settle();
  pair.a.Refreeze();
  CHECK(pair.a.engine.state() == State::kClosed);
  CHECK(pair.a.engine.finished());
}

TEST_CASE("Freeze: before and during set-up") {
  Engine a(Role::kConnecting, {});
  auto idle = Engine::Thaw(a.Freeze());
  REQUIRE(idle.has_value());
  CHECK(idle->state() == State::kIdle);
  Engine z(Role::kAccepting, {});
  const auto hello = idle->Hello();
  REQUIRE(z.HandleHello(hello).has_value());
  auto connecting = Engine::Thaw(idle->Freeze());
  auto accepting = Engine::Thaw(z.Freeze());
  REQUIRE(connecting.has_value());
  REQUIRE(accepting.has_value());
  CHECK(connecting->state() == State::kHelloSent);
  CHECK(accepting->state() == State::kHelloReceived);
  CHECK(connecting->HandleReply(accepting->HelloAck()).has_value());
  CHECK(connecting->state() == State::kEstablished);
}

TEST_CASE("Freeze: Out-Of-Band data and the mark") {
  EnginePair pair({}, {});
  const std::string far(70000, 'f');
  CHECK(pair.a.Send(far, {.buffering = Buffering::kFull, .out_of_band = true}) == far.size());
  pair.a.Refreeze();
  pair.Settle();
  pair.z.Refreeze();
  size_t got = 0;
  while (const size_t n = pair.z.Read(100000).size()) got += n;
  CHECK(got == far.size() - 1);
  CHECK(pair.z.engine.at_mark());
  CHECK(pair.z.engine.TakeOob({}) == std::byte{'f'});
}

TEST_CASE("Freeze: not while an action or a completion is to come") {
  ScriptedPeer peer;
  CHECK(peer.engine().freezable());
  peer.end.CloseSend();
  peer.end.Abort();
  CHECK_FALSE(peer.engine().freezable());  // AbortConn waits for its completion
  peer.end.Complete();
  CHECK(peer.engine().freezable());
  peer.end.Refreeze();
  CHECK(peer.engine().state() == State::kAborted);
  CHECK(peer.reason() == AbortReason::kLocal);
  CHECK(peer.engine().finished());

  ScriptedPeer suspended;
  suspended.Say(wire::SuspComm{4711});
  CHECK_FALSE(suspended.engine().freezable());
  suspended.end.Complete();
  suspended.end.Refreeze();
  CHECK(suspended.engine().suspended_port() == 4711);

  Engine engine(Role::kAccepting, {});
  Engine other(Role::kConnecting, {});
  REQUIRE(engine.HandleHello(other.Hello()).has_value());
  engine.SendHelloAck();
  CHECK_FALSE(engine.freezable());
}

TEST_CASE("Freeze: what was under way when the link broke is over") {
  ScriptedPeer peer({.options = {.read_zcopy = true}});
  SECTION("an RDMA Read of what the peer cancels") {
    peer.Say(wire::SrcAvail{.len = 5000, .stag = STag(7), .va = 1}, "x");
    CHECK(peer.end.Read(10) == "x");
    std::vector<std::byte> out(2000);
    REQUIRE(peer.end.OfferSink(out, false));
    CHECK(peer.Hear() == "RdmaRead len=2000");
    peer.Say(wire::SrcAvailCancel{});
  }
  SECTION("an RDMA Read") {
    peer.Say(wire::SrcAvail{.len = 5000, .stag = STag(7), .va = 1}, "x");
    CHECK(peer.end.Read(10) == "x");
    std::vector<std::byte> out(2000);
    REQUIRE(peer.end.OfferSink(out, false));
    CHECK(peer.Hear() == "RdmaRead len=2000");
  }
  SECTION("an RDMA Write to what the peer cancels") {
    REQUIRE(peer.engine().ChangeMode(Half::kSource, FlowMode::kPipelined));
    peer.end.Drain();
    peer.HearAll();
    peer.Say(wire::SinkAvail{.len = 5000, .stag = STag(7), .va = 1});
    std::vector<std::byte> data(2000);
    REQUIRE(peer.end.OfferSource(data));
    CHECK(peer.Hear() == "RdmaWrite len=2000");
    peer.Say(wire::SinkAvailCancel{});
  }
  peer.end.LoseLink(false);
  (void)peer.end.SinkResult();
  (void)peer.end.SourceResult();
  CHECK(peer.engine().advertised_bytes() == 0);
  CHECK(peer.end.Refreeze());
  CHECK(peer.reason() == AbortReason::kLinkLost);
}

TEST_CASE("Freeze: bytes that are no engine are refused") {
  EnginePair pair({}, {});
  pair.a.Send("text");
  pair.Settle();
  const auto frozen = pair.z.engine.Freeze();
  for (size_t n = 0; n < frozen.size(); ++n) {
    CHECK_FALSE(Engine::Thaw(Bytes(frozen).first(n)).has_value());
  }
  auto longer = frozen;
  longer.push_back({});
  CHECK(Engine::Thaw(longer).error() == ThawError::kBroken);
  auto version = frozen;
  version[5] ^= std::byte{0x80};
  CHECK(Engine::Thaw(version).error() == ThawError::kOtherVersion);
  auto magic = frozen;
  magic[0] = {};
  CHECK(Engine::Thaw(magic).error() == ThawError::kNotAnEngine);
  CHECK(Engine::Thaw(frozen).has_value());
}

}  // namespace sdp::engine
