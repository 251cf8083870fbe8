// Socket Duplication and Managed Failover (SDP 13): a session leaves its LLP connection and goes on over
// another one.
#include <catch2/catch.hpp>

#include "test/core/scripted_peer.h"

namespace sdp::engine {
namespace {

constexpr Options kZcopy{.receive_buffer_size = 1016,
                         .read_zcopy = true,
                         .source_threshold = 2000,
                         .sink_threshold = 1500,
                         .src_avail_payload = 100};
constexpr Options kThree{.receive_buffers = 3, .receive_buffer_size = 1016, .receive_limit = 3 * 1016};

std::vector<std::byte> Fill(size_t size, uint8_t seed) {
  std::vector<std::byte> data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(seed + i * 7);
  return data;
}

void CompleteRead(ScriptedPeer* peer) {
  --peer->end.reads_outstanding;
  peer->engine().HandleRdmaReadCompleted(peer->last_rdma.read.id);
  peer->end.Drain();
}

std::string ReadAll(End* end) {
  std::string all;
  for (std::string some = end->Read(5000); !some.empty(); some = end->Read(5000)) all += some;
  return all;
}

}  // namespace

TEST_CASE("Suspension: SuspComm is the last message until the next connection") {
  ScriptedPeer peer;
  REQUIRE(peer.end.Suspend(4711));
  CHECK_FALSE(peer.end.Suspend(4712));
  REQUIRE(peer.end.flights.size() == 1);
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "SuspComm port=4711");
  CHECK(peer.end.Send("kept", {.buffering = Buffering::kFull}) == 4);
  CHECK_FALSE(peer.engine().writable());
  CHECK_FALSE(peer.engine().wants_source(1 << 20));
  for (int i = 0; i < 20; ++i) peer.Say(wire::Data{}, "x");
  CHECK(peer.end.Read(100).size() == 20);
  peer.end.CloseSend();
  CHECK(peer.HearAll() == "nothing");
  CHECK_FALSE(peer.engine().suspended());
  peer.Say(wire::SuspCommAck{});
  CHECK(peer.engine().suspended());
  CHECK_FALSE(peer.engine().suspended_port().has_value());
  CHECK(peer.HearAll() == "nothing");
  CHECK_FALSE(peer.engine().Resume(1, 1));  // the link is still there
  peer.end.LoseLink(true);
  CHECK(peer.reason() == AbortReason::kNone);
  CHECK_FALSE(peer.engine().finished());
  CHECK(peer.end.Resume());
  CHECK(peer.engine().buffered_bytes() == 4);
}

TEST_CASE("Suspension: SuspComm waits for RDMA Reads in process, and their RdmaRdCompl") {
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(wire::SrcAvail{.len = 9000, .stag = STag(7), .va = 1}, "x");
  peer.end.Read(10);
  std::vector<std::byte> out(20000);
  REQUIRE(peer.end.OfferSink(out, false));
  CHECK(peer.Hear() == "RdmaRead len=8999");
  REQUIRE(peer.end.Suspend(1));
  CHECK(peer.HearAll() == "nothing");
  CompleteRead(&peer);
  CHECK(peer.HearAll() == "RdmaRdCompl len=8999, SuspComm port=1");
  CHECK(peer.end.SinkResult()->bytes == 8999);
}

TEST_CASE("Suspension: SuspComm waits for an RDMA Write in process, and its RdmaWrCompl") {
  ScriptedPeer peer({.options = kZcopy});
  REQUIRE(peer.engine().ChangeMode(Half::kSource, FlowMode::kPipelined));
  peer.end.Drain();
  peer.HearAll();
  peer.Say(wire::SinkAvail{.len = 3000, .stag = STag(8), .va = 1});
  auto data = Fill(5000, 1);
  REQUIRE(peer.end.OfferSource(data));
  CHECK(peer.Hear() == "RdmaWrite len=3000");
  REQUIRE(peer.end.Suspend(1));
  CHECK(peer.HearAll() == "nothing");
  peer.end.completions.clear();
  peer.engine().HandleRdmaWriteCompleted(peer.last_rdma.read.id);
  peer.end.Drain();
  CHECK(peer.HearAll() == "RdmaWrCompl len=3000, SuspComm port=1");
  peer.Say(wire::SuspCommAck{});
  CHECK(peer.end.SourceResult()->bytes == 3000);  // the rest is offered again in the next connection
}

TEST_CASE("Suspension: what the peer finishes before its SuspCommAck counts, what it does not is cancelled") {
  ScriptedPeer peer({.options = kZcopy});
  auto data = Fill(5000, 2);
  REQUIRE(peer.end.OfferSource(data));
  peer.Hear();
  REQUIRE(peer.end.Suspend(1));
  CHECK(peer.Hear() == "SuspComm port=1");
  CHECK_FALSE(peer.end.SourceResult().has_value());
  peer.Say(wire::RdmaRdCompl{1000});
  peer.Say(wire::SrcAvail{.len = 9000, .stag = STag(7), .va = 1}, "x");
  peer.Say(wire::SuspCommAck{});
  CHECK(peer.end.SourceResult()->bytes == 1100);
  CHECK(peer.engine().advertised_bytes() == 0);
  CHECK(peer.end.Read(10) == "x");
}

TEST_CASE("Suspension: SuspComm gives the credit for everything that the peer may have to answer") {
  // The peer has used all it had, and may have sent with its last credits while SuspComm was under way.
  ScriptedPeer peer({.options = kThree});
  peer.Say(wire::Data{}, "x");
  peer.HearAll();
  peer.end.Suspend(1);
  const wire::Message message = peer.Take();
  REQUIRE(std::holds_alternative<wire::SuspComm>(message.body));
  // Three were granted by the Hello, one is used.
  CHECK(message.bsdh.bufs + 1u >= 3u + 4u);
  for (int i = 0; i < 6; ++i) peer.Say(wire::Data{});
  CHECK(peer.HearAll() == "nothing");
  CHECK(peer.reason() == AbortReason::kNone);
}

TEST_CASE("Suspension: the next connection begins anew, the session goes on") {
  const AckIn ack = GENERATE(AckIn::kReply, AckIn::kSend);
  EnginePair pair(kZcopy, kThree, ack);
  pair.Settle();
  pair.a.engine.SetOutOfBandInline(false);
  pair.z.engine.SetOutOfBandInline(false);
  REQUIRE(pair.a.engine.ChangeMode(Half::kSource, FlowMode::kPipelined));
  pair.a.Drain();
  pair.a.Send("unread ");
  pair.Settle();
  // More than credit allows, with an urgent byte that is announced and not yet sent.
  const std::string rest(9000, 'r');
  REQUIRE(pair.a.Send(rest, {.buffering = Buffering::kFull, .out_of_band = true}) == rest.size());
  pair.a.CloseSend();
  pair.Settle();
  CHECK(pair.z.engine.oob_pending());
  CHECK(pair.a.engine.buffered_bytes() != 0);
  REQUIRE(pair.z.Suspend(99));
  pair.Settle();
  REQUIRE(pair.a.engine.suspended_port() == 99);
  REQUIRE(pair.Reconnect(ack));
  pair.Settle();
  CHECK(pair.a.engine.state() == State::kSendClosed);
  CHECK(pair.a.engine.stats().source_mode == FlowMode::kCombined);
  CHECK_FALSE(pair.z.engine.suspended());
  std::string got;
  for (int i = 0; i < 100 && !pair.z.engine.end_of_stream(); ++i) {
    got += ReadAll(&pair.z);
    pair.Settle();
  }
  CHECK(got == "unread " + rest.substr(1));
  CHECK(pair.z.engine.TakeOob({}) == std::byte{'r'});
  pair.z.Send("back");
  pair.Settle();
  CHECK(pair.a.Read(10) == "back");
  pair.z.CloseSend();
  pair.Settle();
  CHECK(pair.a.disconnected);
  CHECK(pair.z.disconnected);
  CHECK(pair.a.engine.state() == State::kClosed);
}

TEST_CASE("Suspension: roles change with the connection, and it works again and again") {
  EnginePair pair(kThree, kThree);
  std::string got;
  for (int i = 0; i < 20; ++i) {
    End& local = i % 3 == 0 ? pair.a : pair.z;
    REQUIRE(pair.a.Send(std::to_string(i % 10)) == 1);
    REQUIRE(local.Suspend(static_cast<uint16_t>(i)));
    pair.Settle();
    REQUIRE(pair.Reconnect(i % 2 ? AckIn::kReply : AckIn::kSend));
    if (i % 4 == 0) pair.a.Refreeze();
    if (i % 5 == 0) pair.z.Refreeze();
    got += ReadAll(&pair.z);
    pair.Settle();
  }
  got += ReadAll(&pair.z);
  CHECK(got == "01234567890123456789");
}

TEST_CASE("Suspension: what was said by DisConn is said again, and read only once") {
  EnginePair pair({}, {});
  pair.a.Send("last");
  pair.a.CloseSend();
  pair.Settle();
  CHECK(pair.z.engine.peer_closed());
  REQUIRE(pair.z.Suspend(1));
  pair.Settle();
  REQUIRE(pair.Reconnect(AckIn::kReply));
  CHECK(pair.z.engine.peer_closed());
  CHECK(pair.a.Text().find("DisConn") == 0);
  // Half of the connection is still open, and ends with the second DisConn alone.
  CHECK(pair.z.Send("answer") == 6);
  pair.Settle();
  CHECK(pair.z.Read(10) == "last");
  CHECK(pair.z.engine.end_of_stream());
  CHECK_FALSE(pair.z.disconnected);
  CHECK(pair.a.Read(10) == "answer");
  pair.z.CloseSend();
  pair.Settle();
  CHECK(pair.z.disconnected);
  CHECK_FALSE(pair.z.Suspend(2));
}

TEST_CASE("Suspension: data after a DisConn of the connection before is a violation") {
  EnginePair pair({}, {});
  pair.a.CloseSend();
  pair.Settle();
  REQUIRE(pair.z.Suspend(1));
  pair.Settle();
  REQUIRE(pair.Reconnect(AckIn::kReply));
  const wire::Message data{{.bufs = 24, .len = 17}, wire::Data{}};
  pair.z.Receive(Encode(data, "x"));
  CHECK(pair.z.engine.abort_reason() == AbortReason::kDataAfterDisConn);
}

TEST_CASE("Suspension: when both ask, the accepting peer disregards and the connecting peer asks again") {
  EnginePair pair({}, {});
  REQUIRE(pair.a.Suspend(1));
  REQUIRE(pair.z.Suspend(2));
  CHECK(pair.a.Peek().body == wire::Body(wire::SuspComm{1}));
  CHECK(pair.z.Peek().body == wire::Body(wire::SuspComm{2}));
  pair.Settle();
  CHECK(pair.a.engine.suspended_port() == 2);
  CHECK_FALSE(pair.z.engine.suspended_port().has_value());
  REQUIRE(pair.Reconnect(AckIn::kReply));
  // a, the connecting peer of this connection as well, says it again.
  CHECK(pair.a.Peek().body == wire::Body(wire::SuspComm{1}));
  pair.Settle();
  CHECK(pair.z.engine.suspended_port() == 1);
  REQUIRE(pair.Reconnect(AckIn::kReply));
  CHECK(pair.a.flights.empty());
  pair.z.Send("on");
  pair.Settle();
  CHECK(pair.a.Read(10) == "on");
}

TEST_CASE("Suspension: an answer to what both asked follows at once, whatever credit there was") {
  EnginePair pair(kThree, kThree);
  for (End* end : {&pair.a, &pair.z}) {
    for (int i = 0; i < 4; ++i) end->Send(std::string(900, 'x'), {.buffering = Buffering::kFull});
  }
  pair.Settle();
  REQUIRE(pair.a.Suspend(1));
  REQUIRE(pair.z.Suspend(2));
  pair.Settle();
  CHECK(pair.a.engine.suspended());
  CHECK(pair.z.engine.suspended());
}

TEST_CASE("Suspension: one that is asked for while the peer's is answered follows in the next connection") {
  ScriptedPeer peer({.options = kZcopy});
  peer.Say(wire::SrcAvail{.len = 9000, .stag = STag(7), .va = 1}, "x");
  peer.end.Read(10);
  std::vector<std::byte> out(20000);
  REQUIRE(peer.end.OfferSink(out, false));
  CHECK(peer.Hear() == "RdmaRead len=8999");
  peer.Say(wire::SuspComm{4711});
  REQUIRE(peer.end.Suspend(5));
  CHECK(peer.HearAll() == "nothing");
  CompleteRead(&peer);
  CHECK(peer.HearAll() == "RdmaRdCompl len=8999, SuspCommAck");
  peer.end.Complete();
  peer.end.LoseLink(true);
  REQUIRE(peer.end.SinkResult());
  peer.end.regions.clear();
  REQUIRE(peer.end.Resume());
  (void)peer.engine().Hello();
  const wire::Message ack{{.bufs = 24, .len = kHelloAckSize},
                          wire::HelloAck{.max_adverts = 4, .act_rcv_sz = 1016, .loc_ird = 4, .loc_ord = 4}};
  REQUIRE(peer.engine().HandleReply(Encode(ack, "")).has_value());
  peer.end.Drain();
  CHECK(peer.Hear() == "SuspComm port=5");
}

TEST_CASE("Suspension: messages that may not come") {
  const auto after = [](bool disregarded, const wire::Body& body, const std::string& payload = "") {
    ScriptedPeer peer;  // the engine accepts
    peer.end.Suspend(1);
    peer.HearAll();
    if (disregarded) {
      peer.heard = 0;
      peer.Say(wire::SuspComm{2});
    } else {
      peer.Say(wire::SuspCommAck{});
    }
    REQUIRE(peer.reason() == AbortReason::kNone);
    peer.Say(body, payload);
    return peer.reason();
  };
  CHECK(after(false, wire::Data{}) == AbortReason::kAfterSuspend);
  CHECK(after(false, wire::SuspCommAck{}) == AbortReason::kAfterSuspend);
  CHECK(after(false, wire::SuspComm{3}) == AbortReason::kAfterSuspend);
  CHECK(after(true, wire::Data{}, "x") == AbortReason::kAfterSuspend);
  CHECK(after(true, wire::SuspComm{3}) == AbortReason::kAfterSuspend);
  CHECK(after(true, wire::SuspCommAck{}) == AbortReason::kNone);
  ScriptedPeer connecting({.role = Role::kConnecting});
  connecting.end.Suspend(1);
  connecting.HearAll();
  connecting.heard = 0;
  connecting.Say(wire::SuspComm{2});
  CHECK(connecting.HearAll() == "SuspCommAck");
  connecting.Say(wire::SuspCommAck{});  // it had to be disregarded
  CHECK(connecting.reason() == AbortReason::kAfterSuspend);
}

TEST_CASE("Suspension: a link that is lost before the answer is lost, one that ends after it is left") {
  ScriptedPeer early;
  early.end.Suspend(1);
  early.end.LoseLink(false);
  CHECK(early.reason() == AbortReason::kLinkLost);
  CHECK_FALSE(early.engine().suspended());
  ScriptedPeer late;
  late.end.Suspend(1);
  late.HearAll();
  late.Say(wire::SuspCommAck{});
  late.end.LoseLink(false);
  CHECK(late.engine().suspended());
  late.end.Abort();  // nobody connects: the owner gives up
  CHECK(late.reason() == AbortReason::kLocal);
  CHECK(late.engine().finished());
}

TEST_CASE(
    "Suspension: in a failover the endpoint has limits of its own, and the Private Buffers' size stays") {
  Options options;
  options.receive_buffer_size = 2000;
  EnginePair pair(options, options);
  REQUIRE(pair.a.engine.AskPeerBufferSize(3000));
  pair.a.Drain();
  for (int i = 0; i < 40; ++i) {  // all buffers of the old size are used
    pair.a.Send("x");
    pair.Settle();
    pair.z.Read(10);
    pair.Settle();
  }
  REQUIRE(pair.a.engine.stats().remote_buffer_size == 3000);
  REQUIRE(pair.z.Suspend(1));
  pair.Settle();
  const std::vector<std::byte> frozen = pair.z.engine.Freeze();
  pair.a.LoseLink(true);
  pair.z.LoseLink(true);
  // z goes on in another process, on an RNIC with other limits.
  auto elsewhere = Engine::Thaw(pair.z.engine.Freeze());
  REQUIRE(elsewhere.has_value());
  REQUIRE(elsewhere->Resume(2, 3));
  REQUIRE(pair.a.Resume());
  REQUIRE(elsewhere->HandleHello(pair.a.engine.Hello()).has_value());
  const auto ack = elsewhere->HelloAck();
  const auto message = wire::Parse(ack, ack.size());
  REQUIRE(message.has_value());
  const auto& header = std::get<wire::HelloAck>(message->body);
  CHECK(header.act_rcv_sz == 3000);
  CHECK(header.loc_ird == 2);
  CHECK(header.loc_ord == 3);
  CHECK(message->bsdh.bufs >= 3);
  REQUIRE(pair.a.engine.HandleReply(ack).has_value());
  CHECK(pair.a.engine.ord() == 2);
  CHECK(Engine::Thaw(frozen).has_value());
}

TEST_CASE("Suspension: not before there is a connection, nor after its end") {
  Engine idle(Role::kAccepting, {});
  CHECK_FALSE(idle.Suspend(1));
  ScriptedPeer peer;
  peer.end.Abort();
  CHECK_FALSE(peer.end.Suspend(1));
  ScriptedPeer lost;
  lost.end.LoseLink(false);
  CHECK_FALSE(lost.end.Suspend(1));
}

}  // namespace sdp::engine
