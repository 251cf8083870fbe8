// Graceful and abortive close (SDP 8.2).
#include <catch2/catch.hpp>

#include "test/core/scripted_peer.h"

namespace sdp::engine {

TEST_CASE("Teardown: half close, then the other half, then the link") {
  EnginePair pair({}, {});
  pair.a.Send("last words");
  pair.a.CloseSend();
  CHECK(pair.a.engine.state() == State::kSendClosed);
  CHECK_FALSE(pair.a.engine.can_send());
  CHECK(pair.a.Send("more") == 0);
  CHECK_FALSE(pair.a.engine.writable());
  REQUIRE(pair.a.flights.size() == 2);
  CHECK_FALSE(pair.a.flights[1].solicited);
  pair.Settle();
  CHECK(pair.z.engine.state() == State::kReceiveClosed);
  CHECK(pair.z.engine.peer_closed());
  CHECK_FALSE(pair.z.engine.end_of_stream());
  CHECK(pair.z.Read(100) == "last words");
  CHECK(pair.z.engine.end_of_stream());
  CHECK_FALSE(pair.z.disconnected);
  // The other direction goes on.
  for (int i = 0; i < 100; ++i) {
    CHECK(pair.z.Send("answer") == 6);
    pair.Settle();
    CHECK(pair.a.Read(100) == "answer");
  }
  pair.z.CloseSend();
  CHECK(pair.z.engine.state() == State::kClosed);
  CHECK(pair.z.disconnected);  // the second DisConn is followed by the LLP's teardown
  CHECK(pair.z.engine.finished());
  CHECK_FALSE(pair.a.disconnected);
  pair.Settle();
  CHECK(pair.a.engine.state() == State::kClosed);
  CHECK(pair.a.engine.end_of_stream());
  CHECK(pair.a.engine.finished());
  pair.a.LoseLink(true);
  pair.z.LoseLink(true);
  CHECK(pair.a.engine.state() == State::kClosed);
  CHECK(pair.z.engine.state() == State::kClosed);
}

TEST_CASE("Teardown: DisConn waits for the data before it, and for credit") {
  ScriptedPeer peer({.bufs = 3});
  peer.repost = false;
  peer.end.Send(std::string(400, 'a'));
  peer.end.Send(std::string(400, 'b'));
  peer.end.CloseSend();
  CHECK(peer.engine().state() == State::kSendClosed);
  CHECK(peer.engine().has_unfinished_sends());
  CHECK(peer.HearAll().substr(0, 16) == "Data payload=400");
  CHECK(peer.engine().has_unfinished_sends());
  peer.repost = true;
  peer.bufs = 24;
  peer.Say(wire::Data{});
  CHECK(peer.HearAll() == "Data payload=400, DisConn");
  CHECK_FALSE(peer.engine().has_unfinished_sends());
  peer.end.CloseSend();
  CHECK(peer.HearAll() == "nothing");
}

TEST_CASE("Teardown: nothing may follow a DisConn but what carries no data") {
  const auto after = [](const wire::Body& body, const std::string& payload) {
    ScriptedPeer peer;
    peer.Say(wire::DisConn{});
    peer.Say(body, payload);
    return peer.reason();
  };
  CHECK(after(wire::Data{}, "") == AbortReason::kNone);
  CHECK(after(wire::Data{}, "x") == AbortReason::kDataAfterDisConn);
  CHECK(after(wire::DisConn{}, "") == AbortReason::kDataAfterDisConn);
  CHECK(after(wire::SrcAvail{.len = 9}, "x") == AbortReason::kDataAfterDisConn);
  CHECK(after(wire::ModeChange{.mode = wire::ModeChange::kBuffered}, "") == AbortReason::kNone);
  CHECK(after(wire::AbortConn{}, "") == AbortReason::kPeerAborted);
}

TEST_CASE("Teardown: an abort before DisConn sends nothing") {
  ScriptedPeer peer({.bufs = 3});
  peer.end.Send(std::string(400, 'a'));
  peer.end.Send(std::string(400, 'b'));
  CHECK(peer.engine().buffered_bytes() == 400);
  peer.HearAll();
  peer.end.Abort();
  CHECK(peer.HearAll() == "nothing");
  CHECK(peer.end.aborted_link);
  CHECK(peer.engine().buffered_bytes() == 0);
  CHECK(peer.engine().state() == State::kAborted);
  CHECK(peer.reason() == AbortReason::kLocal);
  CHECK(peer.engine().finished());
}

TEST_CASE("Teardown: after DisConn it sends AbortConn and waits for its completion") {
  ScriptedPeer peer;
  peer.end.CloseSend();
  CHECK(peer.Hear() == "DisConn");
  peer.end.Abort();
  REQUIRE(peer.end.flights.size() == 1);
  CHECK(peer.end.flights[0].solicited);
  CHECK(peer.Hear() == "AbortConn");
  CHECK_FALSE(peer.end.disconnected);
  CHECK_FALSE(peer.engine().finished());
  CHECK(peer.engine().has_unfinished_sends());
  REQUIRE(peer.end.completions.size() == 1);
  peer.end.Complete();
  // 8.2.2: the normal teardown of the LLP.
  CHECK(peer.end.disconnected);
  CHECK_FALSE(peer.end.aborted_link);
  CHECK(peer.engine().finished());
}

TEST_CASE("Teardown: an AbortConn is not answered with another") {
  ScriptedPeer peer;
  peer.end.CloseSend();
  CHECK(peer.Hear() == "DisConn");
  peer.Say(wire::DisConn{});
  peer.Say(wire::AbortConn{});
  CHECK(peer.reason() == AbortReason::kPeerAborted);
  CHECK(peer.HearAll() == "nothing");
  CHECK(peer.end.aborted_link);

  ScriptedPeer half;
  half.end.CloseSend();
  CHECK(half.Hear() == "DisConn");
  half.Say(wire::AbortConn{});
  CHECK(half.HearAll() == "nothing");
  CHECK(half.end.aborted_link);
  CHECK(half.engine().finished());
}

TEST_CASE("Teardown: a link that ends meanwhile ends the wait for the completion") {
  ScriptedPeer peer;
  peer.end.CloseSend();
  peer.end.Abort();
  CHECK_FALSE(peer.engine().finished());
  peer.end.LoseLink(false);
  CHECK(peer.engine().finished());
  CHECK(peer.reason() == AbortReason::kLocal);
}

TEST_CASE("Teardown: AbortConn after DisConn takes the end of the stream back") {
  EnginePair pair({}, {});
  pair.a.CloseSend();
  pair.Settle();
  CHECK(pair.z.engine.end_of_stream());
  pair.a.Abort();
  pair.Settle();
  CHECK(pair.z.engine.state() == State::kAborted);
  CHECK(pair.z.engine.abort_reason() == AbortReason::kPeerAborted);
  CHECK_FALSE(pair.z.engine.end_of_stream());
  CHECK(pair.z.aborted_link);
  CHECK(pair.z.engine.finished());
}

TEST_CASE("Teardown: what the end of the link means") {
  const auto after = [](bool we_close, bool peer_closes) {
    ScriptedPeer peer;
    if (we_close) peer.end.CloseSend();
    if (peer_closes) peer.Say(wire::DisConn{});
    peer.end.LoseLink(true);
    return std::pair(peer.engine().state(), peer.reason());
  };
  CHECK(after(false, false) == std::pair(State::kAborted, AbortReason::kLinkLost));
  CHECK(after(true, false) == std::pair(State::kAborted, AbortReason::kLinkLost));
  CHECK(after(false, true) == std::pair(State::kAborted, AbortReason::kLinkLost));
  CHECK(after(true, true) == std::pair(State::kClosed, AbortReason::kNone));
}

TEST_CASE("Teardown: received data outlives the link, and the engine is finished when it is read") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "still here");
  peer.Say(wire::DisConn{});
  peer.end.LoseLink(true);
  CHECK_FALSE(peer.engine().finished());
  CHECK_FALSE(peer.engine().end_of_stream());
  CHECK(peer.end.Read(100) == "still here");
  CHECK(peer.engine().end_of_stream());
  CHECK(peer.engine().finished());
}

TEST_CASE("Teardown: a violation ends the connection with its reason, and later messages are dropped") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "good");
  peer.Say(wire::SuspCommAck{});
  CHECK(peer.reason() == AbortReason::kUnexpectedMid);
  CHECK(peer.end.aborted_link);
  peer.end.aborted_link = false;
  peer.Say(wire::Data{}, "late");
  CHECK(peer.reason() == AbortReason::kUnexpectedMid);
  CHECK(peer.end.Read(100) == "good");
  CHECK(peer.engine().finished());
  CHECK(std::string(ToString(peer.reason())) == "unexpected-mid");
  CHECK(std::string(ToString(peer.engine().state())) == "aborted");
}

TEST_CASE("Teardown: a violation after our DisConn is answered by AbortConn") {
  ScriptedPeer peer;
  peer.end.CloseSend();
  CHECK(peer.Hear() == "DisConn");
  peer.Say(wire::SinkCancelAck{});
  CHECK(peer.Hear() == "AbortConn");
}

TEST_CASE("Teardown: without credit for an AbortConn the link says it") {
  ScriptedPeer peer({.bufs = 3});
  peer.repost = false;
  peer.end.Send("x");
  peer.end.CloseSend();
  CHECK(peer.engine().stats().send_credits == 1);
  peer.HearAll();
  peer.end.Abort();
  CHECK(peer.HearAll() == "nothing");
  CHECK(peer.end.aborted_link);
}

TEST_CASE("Teardown: close before the connection is there") {
  End a("a", Role::kConnecting, {});
  (void)a.engine.Hello();
  a.CloseSend();
  CHECK(a.engine.state() == State::kHelloSent);
  a.Abort();
  CHECK(a.aborted_link);
  CHECK(a.engine.finished());
}

}  // namespace sdp::engine
