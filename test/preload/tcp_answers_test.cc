// What TCP tells of a connection in its odd states, of values alone.
#include "preload/socket/tcp_answers.h"

#include <poll.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "test/core/engine_pair.h"

namespace sdp::preload {
namespace {

const verbs::LinkCause kClosed{.end = verbs::LinkEnd::kClosedByPeer, .text = {}};
const verbs::LinkCause kReset{.end = verbs::LinkEnd::kReset, .os_error = ECONNRESET, .text = {}};
const verbs::LinkCause kLocalReset{.end = verbs::LinkEnd::kReset, .text = {}};

constexpr short kReadable = POLLIN | POLLRDNORM;
constexpr short kWritable = POLLOUT | POLLWRNORM;

struct Seen {
  engine::EnginePair pair{{}, {}};
  const engine::Engine& e = pair.z.engine;
  // The peer closes, and its link ends behind that.
  void PeerGoes() {
    pair.a.CloseSend();
    pair.Settle();
    pair.z.LoseLink(/*orderly=*/true);
  }
};

TEST_CASE("answers: an open connection is writable, and readable from SO_RCVLOWAT on") {
  Seen s;
  const TcpView view{.engine = s.e};
  CHECK(ReadyEvents(view, {.writable = true}) == kWritable);
  CHECK(ReadyEvents(view, {.writable = false}) == 0);
  CHECK(EndOfReceive(view, false) == ReceiveEnd::kWaits);
  s.pair.a.Send("abc");
  s.pair.Settle();
  CHECK(ReadyEvents(view, {.low_water = 3, .writable = true}) == (kReadable | kWritable));
  CHECK(ReadyEvents(view, {.low_water = 4, .writable = true}) == kWritable);
  CHECK(ReadyEvents(view, {.low_water = 4, .urgent = true, .told = true}) == (POLLPRI | POLLERR));
}

TEST_CASE("answers: behind the peer's end what came is read, and then the stream ends") {
  Seen s;
  const TcpView view{.engine = s.e};
  s.pair.a.Send("abc");
  s.pair.a.CloseSend();
  s.pair.Settle();
  CHECK(ReadyEvents(view, {.low_water = 100, .writable = true}) == (kReadable | POLLRDHUP | kWritable));
  CHECK(EndOfReceive(view, /*peek=*/false) == ReceiveEnd::kWaits);
  CHECK(EndOfReceive(view, /*peek=*/true) == ReceiveEnd::kEndOfStream);
  CHECK(s.pair.z.Read(8) == "abc");
  CHECK(EndOfReceive(view, /*peek=*/false) == ReceiveEnd::kEndOfStream);
  CHECK(EndOfReceive({.engine = s.e, .pending_error = EPIPE}, false) == ReceiveEnd::kEndOfStream);
}

TEST_CASE(
    "answers: a peer that has closed and left is CLOSE_WAIT, without POLLHUP, until this end does "
    "something") {
  Seen s;
  const TcpView view{.engine = s.e, .link_ended = true};
  CHECK_FALSE(InCloseWait(view, kClosed));
  s.PeerGoes();
  REQUIRE(s.e.state() == engine::State::kAborted);
  REQUIRE(s.e.peer_closed());
  CHECK(InCloseWait(view, kClosed));
  CHECK_FALSE(InCloseWait(view, kLocalReset));
  CHECK_FALSE(InCloseWait({.engine = s.e, .pending_error = EPIPE}, kClosed));
  CHECK_FALSE(InCloseWait({.engine = s.e, .send_shut = true}, kClosed));
  const short open = kReadable | kWritable | POLLRDHUP;
  CHECK(ReadyEvents(view, {.close_wait = true}) == open);
  CHECK(ReadyEvents(view, {.close_wait = false}) == (open | POLLHUP));
}

TEST_CASE("answers: an end of ours, or an abort, is no CLOSE_WAIT") {
  Seen closed;
  closed.pair.z.CloseSend();
  closed.PeerGoes();
  CHECK_FALSE(InCloseWait({.engine = closed.e}, kClosed));
  Seen aborted;
  aborted.pair.a.CloseSend();
  aborted.pair.Settle();
  aborted.pair.z.Abort();
  CHECK_FALSE(InCloseWait({.engine = aborted.e}, kClosed));
}

TEST_CASE("answers: an AbortConn behind the peer's end is a reset, even with the link's end behind it") {
  Seen s;
  s.pair.a.CloseSend();
  s.pair.Settle();
  s.pair.a.Abort();
  s.pair.Settle();
  s.pair.z.LoseLink(/*orderly=*/true);
  REQUIRE(s.e.abort_reason() == engine::AbortReason::kPeerAborted);
  CHECK_FALSE(PeerLeftInOrder(s.e, kClosed));
  CHECK_FALSE(InCloseWait({.engine = s.e, .link_ended = true}, kClosed));
  Seen left;
  left.PeerGoes();
  CHECK(PeerLeftInOrder(left.e, kClosed));
  CHECK_FALSE(PeerLeftInOrder(left.e, kLocalReset));
}

TEST_CASE("answers: a reset behind the peer's end is an end where nothing but updates of ours is unheard") {
  Seen s;
  for (int i = 0; i < 16; ++i) s.pair.a.Send("0123456789");
  s.pair.a.CloseSend();
  while (s.pair.a.deliverable()) s.pair.z.Deliver(s.pair.a, nullptr);
  REQUIRE_FALSE(s.pair.z.flights.empty());  // updates, of which the peer never hears
  s.pair.z.LoseLink(/*orderly=*/false);
  CHECK(PeerLeftInOrder(s.e, kReset));
  CHECK(InCloseWait({.engine = s.e, .link_ended = true}, kReset));

  Seen unheard;
  unheard.pair.a.CloseSend();
  unheard.pair.Settle();
  unheard.pair.z.Send("what the peer should have had");
  unheard.pair.z.LoseLink(/*orderly=*/false);
  CHECK_FALSE(PeerLeftInOrder(unheard.e, kReset));
}

TEST_CASE("answers: a reset is told once, and is an end of the stream from then on") {
  Seen s;
  s.pair.z.LoseLink(/*orderly=*/false);
  const TcpView told{.engine = s.e, .link_ended = true};
  const TcpView untold{.engine = s.e, .link_ended = true, .pending_error = ECONNRESET};
  CHECK(EndOfReceive(untold, false) == ReceiveEnd::kError);
  CHECK(EndOfReceive(told, false) == ReceiveEnd::kEndOfStream);
  const short ended = kReadable | kWritable | POLLRDHUP | POLLHUP;
  CHECK(ReadyEvents(untold, {}) == (ended | POLLERR));
  CHECK(ReadyEvents(told, {}) == ended);
}

TEST_CASE("answers: an abort has the link's error, or a reset, and EPIPE behind the peer's end") {
  const auto reset = [](int os_error) {
    return verbs::LinkCause{.end = verbs::LinkEnd::kReset, .os_error = os_error, .text = {}};
  };
  Seen s;
  s.pair.z.LoseLink(/*orderly=*/false);
  CHECK(ErrorOfAbort(s.e, reset(ETIMEDOUT)) == ETIMEDOUT);
  CHECK(ErrorOfAbort(s.e, reset(EPIPE)) == ECONNRESET);
  CHECK(ErrorOfAbort(s.e, reset(0)) == ECONNRESET);
  CHECK(ErrorOfAbort(s.e, kClosed) == ECONNRESET);
  Seen ended;
  ended.pair.a.CloseSend();
  ended.pair.Settle();
  ended.pair.z.LoseLink(/*orderly=*/false);
  CHECK(ErrorOfAbort(ended.e, kReset) == EPIPE);
  CHECK(ErrorOfAbort(ended.e, reset(ETIMEDOUT)) == ETIMEDOUT);
}

TEST_CASE("answers: a shut receive side ends a read behind a look at the link, unless an error is due") {
  Seen s;
  CHECK(EndOfReceive({.engine = s.e, .receive_shut = true}, false) == ReceiveEnd::kShut);
  CHECK(EndOfReceive({.engine = s.e, .pending_error = ECONNRESET, .receive_shut = true}, false) ==
        ReceiveEnd::kError);
  const TcpView shut{.engine = s.e, .receive_shut = true};
  CHECK(ReadyEvents(shut, {.writable = true}) == (kReadable | POLLRDHUP | kWritable));
  s.pair.z.CloseSend();
  CHECK(ReadyEvents(shut, {}) == (kReadable | POLLRDHUP | kWritable | POLLHUP));
}

}  // namespace
}  // namespace sdp::preload
