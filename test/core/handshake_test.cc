#include <catch2/catch.hpp>

#include "core/engine/rep.h"
#include "test/core/scripted_peer.h"

namespace sdp::engine {
namespace {

std::vector<std::byte> HelloBytes(const std::function<void(wire::Message*, wire::Hello*)>& change = {}) {
  wire::Message message;
  message.bsdh.bufs = 3;
  message.bsdh.len = kHelloSize;
  wire::Hello hello{.max_adverts = 1, .des_rem_rcv_sz = 100, .local_rcv_sz = 37, .loc_ird = 1, .loc_ord = 1};
  if (change) change(&message, &hello);
  message.body = hello;
  return Encode(message, "");
}

std::vector<std::byte> HelloAckBytes(
    const std::function<void(wire::Message*, wire::HelloAck*)>& change = {}) {
  wire::Message message;
  message.bsdh.bufs = 3;
  message.bsdh.len = kHelloAckSize;
  wire::HelloAck ack{.max_adverts = 1, .act_rcv_sz = 37, .loc_ird = 1, .loc_ord = 1};
  if (change) change(&message, &ack);
  message.body = ack;
  return Encode(message, "");
}

AbortReason Offer(const std::vector<std::byte>& hello) {
  Engine z(Role::kAccepting, {});
  const auto result = z.HandleHello(hello);
  CHECK(result.has_value() == (z.state() == State::kHelloReceived));
  if (result) return AbortReason::kNone;
  CHECK(z.state() == State::kAborted);
  CHECK(z.abort_reason() == result.error());
  return result.error();
}

AbortReason Reply(const std::vector<std::byte>& ack) {
  Engine a(Role::kConnecting, {});
  (void)a.Hello();
  const auto result = a.HandleReply(ack);
  CHECK(a.state() == (result ? State::kEstablished : State::kAborted));
  return result ? AbortReason::kNone : result.error();
}

}  // namespace

TEST_CASE("Handshake: the Hello says what the options say") {
  Engine a(Role::kConnecting, {.receive_buffers = 5,
                               .receive_buffer_size = 4096,
                               .desired_remote_size = 9000,
                               .receive_limit = 99999,
                               .max_adverts = 7,
                               .ird = 3,
                               .ord = 2});
  CHECK(a.state() == State::kIdle);
  const auto bytes = a.Hello();
  CHECK(a.state() == State::kHelloSent);
  const auto message = wire::Parse(bytes, bytes.size());
  REQUIRE(message.has_value());
  CHECK(message->bsdh == wire::Bsdh{.bufs = 5, .mid = wire::Mid::kHello, .len = 32});
  CHECK(std::get<wire::Hello>(message->body) == wire::Hello{.max_adverts = 7,
                                                            .min_v = 1,
                                                            .maj_v = 1,
                                                            .des_rem_rcv_sz = 9000,
                                                            .local_rcv_sz = 4096,
                                                            .loc_ird = 3,
                                                            .loc_ord = 2});
}

TEST_CASE("Handshake: options below the draft's minima are raised") {
  Engine a(Role::kConnecting, {.receive_buffers = 1,
                               .receive_buffer_size = 1,
                               .receive_limit = 1,
                               .max_adverts = 0,
                               .ird = 0,
                               .ord = 0});
  const auto bytes = a.Hello();
  const auto message = wire::Parse(bytes, bytes.size());
  CHECK(message->bsdh.bufs == 3);
  const auto hello = std::get<wire::Hello>(message->body);
  CHECK(hello.local_rcv_sz == 37);
  CHECK(hello.max_adverts == 1);
  CHECK(hello.loc_ird == 1);
  CHECK(hello.loc_ord == 1);
}

TEST_CASE("Handshake: the accepting peer's checks") {
  CHECK(Offer(HelloBytes()) == AbortReason::kNone);
  CHECK(Offer(HelloBytes([](auto*, auto* h) { h->maj_v = 2; })) == AbortReason::kBadVersion);
  CHECK(Offer(HelloBytes([](auto*, auto* h) { h->maj_v = 0; })) == AbortReason::kBadVersion);
  CHECK(Offer(HelloBytes([](auto*, auto* h) { h->min_v = 9; })) == AbortReason::kNone);
  CHECK(Offer(HelloBytes([](auto*, auto* h) { h->max_adverts = 0; })) == AbortReason::kBadMaxAdverts);
  CHECK(Offer(HelloBytes([](auto*, auto* h) { h->loc_ird = 0; })) == AbortReason::kBadIrdOrd);
  CHECK(Offer(HelloBytes([](auto*, auto* h) { h->loc_ord = 0; })) == AbortReason::kBadIrdOrd);
  CHECK(Offer(HelloBytes([](auto* m, auto*) { m->bsdh.bufs = 2; })) == AbortReason::kTooFewBuffers);
  CHECK(Offer(HelloBytes([](auto*, auto* h) { h->local_rcv_sz = 36; })) == AbortReason::kBadBufferSize);
  CHECK(Offer(HelloBytes([](auto*, auto* h) { h->local_rcv_sz = (1u << 31) + 1; })) ==
        AbortReason::kBadBufferSize);
  CHECK(Offer(HelloBytes([](auto* m, auto*) {
          m->bsdh.mseq = MSeq(77);
          m->bsdh.mseq_ack = MSeq(9);
        })) == AbortReason::kNone);
  CHECK(Offer(HelloBytes([](auto* m, auto*) { m->bsdh.len = 33; })) == AbortReason::kLengthMismatch);
  CHECK(Offer(HelloBytes([](auto* m, auto*) { m->bsdh.len = 31; })) == AbortReason::kShortMessage);
  CHECK(Offer(HelloAckBytes()) == AbortReason::kUnexpectedMid);
  CHECK(Offer({}) == AbortReason::kShortMessage);
}

TEST_CASE("Handshake: a refused Hello ends the link without a message") {
  End z("z", Role::kAccepting, {});
  CHECK_FALSE(z.engine.HandleHello(HelloBytes([](auto*, auto* h) { h->maj_v = 2; })).has_value());
  z.Drain();
  CHECK(z.aborted_link);
  CHECK(z.flights.empty());
  CHECK(z.engine.finished());
}

TEST_CASE("Handshake: the connecting peer's checks") {
  CHECK(Reply(HelloAckBytes()) == AbortReason::kNone);
  CHECK(Reply(HelloAckBytes([](auto*, auto* h) { h->maj_v = 3; })) == AbortReason::kBadVersion);
  CHECK(Reply(HelloAckBytes([](auto*, auto* h) { h->min_v = 0; })) == AbortReason::kNone);
  CHECK(Reply(HelloAckBytes([](auto*, auto* h) { h->max_adverts = 0; })) == AbortReason::kBadMaxAdverts);
  CHECK(Reply(HelloAckBytes([](auto*, auto* h) { h->loc_ird = 0; })) == AbortReason::kBadIrdOrd);
  CHECK(Reply(HelloAckBytes([](auto*, auto* h) { h->loc_ord = 0; })) == AbortReason::kBadIrdOrd);
  CHECK(Reply(HelloAckBytes([](auto* m, auto*) { m->bsdh.bufs = 2; })) == AbortReason::kTooFewBuffers);
  CHECK(Reply(HelloAckBytes([](auto*, auto* h) { h->act_rcv_sz = 36; })) == AbortReason::kBadBufferSize);
  CHECK(Reply(HelloBytes()) == AbortReason::kUnexpectedMid);
  CHECK(Reply({std::byte{0}}) == AbortReason::kShortMessage);
}

TEST_CASE("Handshake: padding behind the message in private data does not matter") {
  auto hello = HelloBytes();
  hello.resize(56);
  CHECK(Offer(hello) == AbortReason::kNone);
  auto ack = HelloAckBytes();
  ack.resize(196);
  CHECK(Reply(ack) == AbortReason::kNone);
}

TEST_CASE("Handshake: ORD is lowered to the peer's IRD, the minor version to the lesser") {
  Engine z(Role::kAccepting, {.ird = 8, .ord = 8});
  REQUIRE(z.HandleHello(HelloBytes([](auto*, auto* h) {
             h->loc_ird = 5;
             h->min_v = 0;
           })).has_value());
  const auto bytes = z.HelloAck();
  CHECK(z.state() == State::kEstablished);
  CHECK(z.ord() == 5);
  CHECK(z.ird() == 8);
  CHECK(z.minor_version() == 0);
  const auto ack = std::get<wire::HelloAck>(wire::Parse(bytes, bytes.size())->body);
  CHECK(ack.loc_ord == 5);
  CHECK(ack.loc_ird == 8);
  CHECK(ack.maj_v == 1);
  CHECK(ack.min_v == 1);

  Engine a(Role::kConnecting, {.ird = 8, .ord = 8});
  (void)a.Hello();
  REQUIRE(a.HandleReply(HelloAckBytes([](auto*, auto* h) {
             h->loc_ird = 3;
             h->min_v = 7;
           })).has_value());
  CHECK(a.ord() == 3);
  CHECK(a.minor_version() == 1);
}

TEST_CASE("Handshake: the HelloAck as first Send is solicited, has no MSeq of its own, and takes a buffer") {
  // a -> Hello -> z, z -> HelloAck (Send with SE) -> a
  EnginePair pair({.receive_buffers = 3, .receive_buffer_size = 1000, .receive_limit = 3000}, {},
                  AckIn::kSend);
  REQUIRE(pair.z.flights.size() == 1);
  CHECK(pair.z.flights[0].solicited);
  CHECK(pair.z.engine.stats().send_credits == 2);
  CHECK(pair.a.engine.state() == State::kHelloSent);
  CHECK_FALSE(pair.a.engine.can_send());
  CHECK(pair.a.Send("early") == 0);
  pair.a.Deliver(pair.z, nullptr);
  CHECK(pair.a.engine.state() == State::kEstablished);
  // z could not send payload until it hears of the buffer that a posted again.
  CHECK(pair.a.Text() == "Data bufs=3 mseq=0 ack=0");
  pair.Settle();
  CHECK(pair.z.engine.stats().send_credits >= 3);
  CHECK(pair.z.Send("hi") == 2);
  CHECK(pair.z.Peek().bsdh.mseq == MSeq(0));
}

TEST_CASE("Handshake: anything but a HelloAck as first message is a violation") {
  End a("a", Role::kConnecting, {});
  (void)a.engine.Hello();
  REQUIRE(a.engine.HandleReply({}).has_value());
  wire::Message data;
  data.bsdh.len = 16;
  data.bsdh.bufs = 5;
  a.Receive(Encode(data, ""));
  CHECK(a.engine.abort_reason() == AbortReason::kUnexpectedMid);
  CHECK(a.aborted_link);
  CHECK(a.flights.empty());
}

TEST_CASE("Handshake: a bad HelloAck as first message is a violation, too") {
  End a("a", Role::kConnecting, {});
  (void)a.engine.Hello();
  REQUIRE(a.engine.HandleReply({}).has_value());
  a.Receive(HelloAckBytes([](auto*, auto* h) { h->maj_v = 2; }));
  CHECK(a.engine.abort_reason() == AbortReason::kBadVersion);
  CHECK(a.aborted_link);
}

TEST_CASE("Handshake: both modes begin as Combined") {
  ScriptedPeer peer;
  CHECK(peer.engine().stats().source_mode == FlowMode::kCombined);
  CHECK(peer.engine().stats().sink_mode == FlowMode::kCombined);
}

TEST_CASE("Handshake: a link that ends during set-up aborts it") {
  End a("a", Role::kConnecting, {});
  (void)a.engine.Hello();
  a.LoseLink(true);
  CHECK(a.engine.state() == State::kAborted);
  CHECK(a.engine.abort_reason() == AbortReason::kLinkLost);
  CHECK(a.engine.finished());
}

TEST_CASE("Handshake: an idle connection is small") { CHECK(sizeof(Rep) + sizeof(Engine) <= 1200); }

}  // namespace sdp::engine
