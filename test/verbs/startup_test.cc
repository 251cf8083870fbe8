// How connections begin: the peers' RTR, what is to be confirmed, and peers that are none.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <functional>
#include <string>

#include "test/verbs/qp_pair.h"
#include "test/verbs/raw_peer.h"
#include "verbs/softiwarp/proto/fpdu_reader.h"

namespace sdp::iwarp::test {
namespace {

using namespace std::chrono_literals;
using verbs::Completion;
using verbs::ConnectState;
using verbs::LinkEnd;
using verbs::PostResult;

constexpr verbs::QpOptions kQp{.receive_buffer_size = 100000, .initial_receives = 100};

// What the loopback has taken is there soon.
bool RunSoon(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

TEST_CASE("the RTR opens the responder's direction; without one its Sends wait for the initiator's first") {
  PairOptions options;
  const int how = GENERATE(0, 1, 2, 3);
  CAPTURE(how);
  options.a.rtr_by_read = how == 1;
  if (how == 2) options.a.peer_to_peer = false;
  if (how == 3) options.a.revision = 1;
  QpPair p = MakePair(options);
  const std::string text = "the responder speaks first";
  const Bytes payload = AsBytes(text);
  REQUIRE(p.z.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)}) == PostResult::kOk);
  const bool flushed = p.z.qp->Flush();
  if (!flushed) p.z.qp->DetachBorrowed();
  CHECK_FALSE(p.z.qp->interest().write);
  if (how >= 2) {
    CHECK_FALSE(flushed);
    CHECK(p.z.qp->counters().bytes_out == 0);
    REQUIRE(p.a.Send("first") == PostResult::kOk);
    CHECK(Text(NextCompletion(p.z, p.a)) == "first");
  }
  const Completion got = NextCompletion(p.a, p.z);
  CHECK(Text(got) == text);
  p.a.qp->Release(got.token);
  Completion none;
  CHECK_FALSE(p.a.qp->PollCompletion(&none));  // the RTR's own Read is nobody's completion
}

// As the kernel's siw can be: what comes while its socket changes hands lies there until more comes.
TEST_CASE(
    "a connection to be confirmed is established when the peer's RNIC has answered, and its RTR is repeated "
    "until then") {
  SoftOptions options;
  options.rtr_way = [](Bytes reply) { return reply.empty() ? RtrWay::kAtOnce : RtrWay::kConfirmed; };
  options.rtr_by_read = GENERATE(false, true);
  CAPTURE(options.rtr_by_read);
  auto fds = LoopbackPair(false);
  auto a = Connect(fds[0].value, AsBytes("hello"), kQp, options, Now());
  auto z = Listen(fds[1].value, {}, Now());
  ConnectState a_state = a->Step(Now());
  REQUIRE(RunSoon([&] { return z->Step(Now()) == ConnectState::kRequested; }));
  z->Accept(AsBytes("welcome"), kQp);
  REQUIRE(RunSoon([&] {
    a_state = a->Step(Now());
    return z->Step(Now()) == ConnectState::kEstablished && !a->peer_private_data().empty();
  }));
  auto z_qp = z->TakeQueuePair();
  const auto unread = [&] {
    int bytes = 0;
    REQUIRE(::ioctl(fds[1].value, FIONREAD, &bytes) == 0);
    return bytes;
  };
  REQUIRE(RunSoon([&] {
    a_state = a->Step(Now());
    return unread() > 0;
  }));
  CHECK(a_state == ConnectState::kInProgress);
  CHECK(a->interest().read);
  for (int repeats = 0; repeats < 3; ++repeats) {
    const Time due = a->deadline();
    const int before = unread();
    CHECK(a->Step(due - 1ns) == ConnectState::kInProgress);
    CHECK(a->Step(due) == ConnectState::kInProgress);
    CHECK(a->deadline() > due);
    CHECK(RunSoon([&] { return unread() > before; }));
  }
  REQUIRE(RunSoon([&] {
    z_qp->ReadLink();
    return a->Step(Now()) == ConnectState::kEstablished;
  }));
  auto a_qp = a->TakeQueuePair();
  Completion none;
  CHECK_FALSE(a_qp->PollCompletion(&none));
  CHECK_FALSE(z_qp->PollCompletion(&none));
  CHECK(a_qp->cause().end == LinkEnd::kOpen);
  CHECK(z_qp->cause().end == LinkEnd::kOpen);
}

// `agreed`: what the connecting end makes of the same Reply.
TEST_CASE("where both ends agree there is no RTR, and the responder sends right behind its Reply") {
  const bool agreed = GENERATE(true, false);
  CAPTURE(agreed);
  SoftOptions options;
  options.rtr_way = [](Bytes reply) { return reply.size() == 7 ? RtrWay::kNone : RtrWay::kAtOnce; };
  auto fds = LoopbackPair(false);
  auto a = Connect(fds[0].value, AsBytes("hello"), kQp, agreed ? options : SoftOptions(), Now());
  auto z = Listen(fds[1].value, options, Now());
  a->Step(Now());  // the Request
  REQUIRE(RunSoon([&] { return z->Step(Now()) == ConnectState::kRequested; }));
  REQUIRE(z->may_open());
  z->Accept(AsBytes("welcome"), kQp);
  REQUIRE(z->Step(Now()) == ConnectState::kEstablished);
  auto z_qp = z->TakeQueuePair();
  const std::string text = "at once";
  const Bytes payload = AsBytes(text);
  REQUIRE(z_qp->PostSend({.id = WorkId(1), .payload = {&payload, 1}}) == PostResult::kOk);
  CHECK(z_qp->Flush());
  REQUIRE(RunSoon([&] { return a->Step(Now()) != ConnectState::kInProgress; }));
  if (!agreed) {
    CHECK(a->cause().text == "bytes behind the MPA Reply");
    return;
  }
  auto a_qp = a->TakeQueuePair();
  Completion completion;
  REQUIRE(RunSoon([&] {
    a_qp->ReadLink();
    return a_qp->PollCompletion(&completion);
  }));
  CHECK(Text(completion) == text);
  CHECK(a_qp->counters().bytes_out == 0);
}

TEST_CASE("with CRC or markers the RTR stays, whatever the Reply says") {
  PairOptions options;
  options.a.rtr_way = options.z.rtr_way = [](Bytes) { return RtrWay::kNone; };
  options.a.want_crc = GENERATE(true, false);
  options.a.want_markers = !options.a.want_crc;
  QpPair p = MakePair(options);
  CHECK(p.a.qp->counters().bytes_out > 0);
  REQUIRE(p.a.Send("hello") == PostResult::kOk);
  CHECK(Text(NextCompletion(p.z, p.a)) == "hello");
}

TEST_CASE("a connection to be confirmed fails when the peer's RNIC never answers, or goes") {
  SoftOptions options;
  options.rtr_way = [](Bytes reply) { return reply.empty() ? RtrWay::kAtOnce : RtrWay::kConfirmed; };
  const bool goes = GENERATE(false, true);
  auto fds = LoopbackPair(false);
  auto a = Connect(fds[0].value, AsBytes("hello"), kQp, options, Now());
  auto z = Listen(fds[1].value, {}, Now());
  REQUIRE(RunSoon([&] {
    a->Step(Now());
    return z->Step(Now()) == ConnectState::kRequested;
  }));
  z->Accept(AsBytes("welcome"), kQp);
  REQUIRE(RunSoon([&] {
    a->Step(Now());
    return z->Step(Now()) == ConnectState::kEstablished && !a->peer_private_data().empty();
  }));
  z.reset();
  if (goes) {
    fds[1].Close();
    REQUIRE(RunSoon([&] { return a->Step(Now()) == ConnectState::kFailed; }));
    CHECK(a->cause().end != LinkEnd::kOpen);
    return;
  }
  REQUIRE(a->Step(Now()) == ConnectState::kInProgress);
  Time now = Now();
  ConnectState state = ConnectState::kInProgress;
  for (int steps = 0; steps < 100 && state == ConnectState::kInProgress; ++steps) {
    now = std::max(now, a->deadline());
    state = a->Step(now);
  }
  CHECK(state == ConnectState::kFailed);
  CHECK(a->cause().text == "the peer's RNIC does not answer");
}

TEST_CASE("an RTR by Send is the RNIC's business") {
  RawPeer peer = MakeRawPeer(kQp, {}, "10 02 0004 c004 0004");
  peer.Send(Fpdu({.last = true, .opcode = 3, .msn = 1}));
  peer.Send(Fpdu({.last = true, .opcode = 3, .msn = 2}, AsBytes("real")));
  peer.Run();
  Completion c;
  REQUIRE(peer.qp->PollCompletion(&c));
  CHECK(Text(c) == "real");
  peer.qp->Release(c.token);
  CHECK_FALSE(peer.qp->PollCompletion(&c));
}

TEST_CASE("rejection reaches the connecting side with its private data") {
  auto fds = LoopbackPair();
  auto a = Connect(fds[0].value, AsBytes("hello"), kQp, {}, Now());
  auto z = Listen(fds[1].value, {}, Now());
  CHECK(a->Step(Now()) == ConnectState::kInProgress);
  REQUIRE(z->Step(Now()) == ConnectState::kRequested);
  z->Reject(AsBytes("not you"));
  CHECK(z->Step(Now()) == ConnectState::kRejected);
  CHECK(a->Step(Now()) == ConnectState::kRejected);
  CHECK(std::string(reinterpret_cast<const char*>(a->peer_private_data().data()),
                    a->peer_private_data().size()) == "not you");
}

TEST_CASE("two initiators, two responders") {
  auto fds = LoopbackPair();
  SECTION("initiators see each other's Request") {
    auto a = Connect(fds[0].value, {}, kQp, {}, Now());
    auto z = Connect(fds[1].value, {}, kQp, {}, Now());
    a->Step(Now());
    CHECK(z->Step(Now()) == ConnectState::kInProgress);  // sends
    CHECK(z->Step(Now()) == ConnectState::kFailed);
    CHECK(z->cause().text == "no MPA Reply: wrong key");
    CHECK(z->cause().local);
  }
  SECTION("responders time out") {
    auto z = Listen(fds[1].value, {.startup_timeout = 3s}, Now());
    CHECK(z->Step(Now()) == ConnectState::kInProgress);
    CHECK(z->interest().read);
    CHECK(z->Step(z->deadline()) == ConnectState::kFailed);
    CHECK(z->cause().text == "MPA start-up timed out");
    CHECK(z->cause().os_error == ETIMEDOUT);  // no reset: it is not tried again
    CHECK(z->deadline() == kNever);
  }
}

// The kernel hands over a silent connection late (TCP_DEFER_ACCEPT), and one of which something has come at
// once.
TEST_CASE("the time for which the kernel has kept a silent connection is part of the responder's time-out") {
  auto fds = LoopbackPair();
  const Time start = Now();
  auto z = Listen(fds[1].value, {.startup_timeout = 10s, .deferral = 3s}, start);
  SECTION("nothing has come") {
    CHECK(z->Step(start) == ConnectState::kInProgress);
    CHECK(z->deadline() == start + 7s);
    // What comes from now on changes nothing.
    REQUIRE(::send(fds[0].value, "MPA", 3, 0) == 3);
    CHECK(z->Step(start) == ConnectState::kInProgress);
    CHECK(z->deadline() == start + 7s);
    CHECK(z->Step(start + 7s) == ConnectState::kFailed);
    CHECK(z->cause().text == "MPA start-up timed out");
  }
  SECTION("a part of the request has come") {
    REQUIRE(::send(fds[0].value, "MPA", 3, 0) == 3);
    CHECK(z->Step(start) == ConnectState::kInProgress);
    CHECK(z->deadline() == start + 10s);
    CHECK(z->Step(start + 7s) == ConnectState::kInProgress);
    CHECK(z->Step(start + 10s) == ConnectState::kFailed);
  }
}

TEST_CASE("no peer of ours: HTTP, and a connection that closes") {
  auto fds = LoopbackPair();
  auto z = Listen(fds[1].value, {}, Now());
  SECTION("HTTP") {
    REQUIRE(::send(fds[0].value, "GET / HTTP/1.0\r\n\r\n", 18, 0) == 18);
    CHECK(z->Step(Now()) == ConnectState::kFailed);
    CHECK(z->cause().text == "no MPA Request: wrong key");
  }
  SECTION("FIN") {
    fds[0].Close();
    CHECK(z->Step(Now()) == ConnectState::kFailed);
    CHECK(z->cause().text == "closed by the peer before any MPA frame");
  }
  SECTION("RST") {
    const linger reset{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fds[0].value, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    fds[0].Close();
    CHECK(z->Step(Now()) == ConnectState::kFailed);
    CHECK(z->cause().end == LinkEnd::kReset);
    CHECK(z->cause().os_error == ECONNRESET);
  }
}

TEST_CASE("a peer whose reply is none is wrong; one that goes before it, or within it, is not") {
  auto fds = LoopbackPair();
  auto a = Connect(fds[0].value, AsBytes("hello"), kQp, {}, Now());
  CHECK(a->Step(Now()) == ConnectState::kInProgress);
  std::byte request[64];
  REQUIRE(::recv(fds[1].value, request, sizeof request, 0) > 0);
  const auto answer = [&](const char* hex) {
    const auto bytes = Hex(hex);
    REQUIRE(::send(fds[1].value, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  };
  const char* text = nullptr;
  bool wrong = true;
  SECTION("something else") {
    answer("48545450");
    text = "no MPA Reply: wrong key";
  }
  SECTION("more private data than MPA has") {
    answer("4d504120494420526570204672616d65 00 02 0201");
    text = "MPA frame with more than 512 bytes of private data";
  }
  SECTION("another revision") {
    answer("4d504120494420526570204672616d65 00 01 0000");
    text = "MPA Reply has revision 1, ours is 2";
  }
  SECTION("it goes before the reply") {
    text = "closed by the peer before any MPA frame";
    wrong = false;
  }
  SECTION("it goes within the reply") {
    answer("4d504120494420526570");
    text = "closed by the peer during MPA start-up";
    wrong = false;
  }
  fds[1].Close();
  REQUIRE(RunSoon([&] { return a->Step(Now()) == ConnectState::kFailed; }));
  CHECK(a->cause().end == LinkEnd::kReset);
  CHECK(a->cause().text == text);
  CHECK(a->cause().local == wrong);
}

TEST_CASE("a reply that asks for too many Reads is answered with a Terminate") {
  auto fds = LoopbackPair();
  auto a = Connect(fds[0].value, {}, {.receive_buffer_size = 100, .ird = 2, .ord = 2}, {}, Now());
  a->Step(Now());
  std::byte request[64];
  REQUIRE(::recv(fds[1].value, request, sizeof request, 0) == 24);
  const auto reply = Hex("4d504120494420526570204672616d65 10 02 0004 8002 8003");
  ::send(fds[1].value, reply.data(), reply.size(), 0);
  CHECK(a->Step(Now()) == ConnectState::kFailed);
  std::byte answer[64];
  const ssize_t n = ::recv(fds[1].value, answer, sizeof answer, 0);
  const auto terminate = Fpdu({.last = true, .opcode = 7, .queue = 2, .msn = 1}, Hex("20060000"));
  // Behind the RTR, which opens the direction in any case.
  REQUIRE(n >= static_cast<ssize_t>(terminate.size()));
  CHECK(std::equal(terminate.begin(), terminate.end(), answer + n - static_cast<ssize_t>(terminate.size())));
}

}  // namespace
}  // namespace sdp::iwarp::test
