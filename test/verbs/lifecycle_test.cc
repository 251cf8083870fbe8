// How connections begin and end, and what the owner may rely on in between.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "test/verbs/qp_pair.h"
#include "test/verbs/raw_peer.h"
#include "verbs/softiwarp/proto/fpdu_reader.h"

namespace sdp::iwarp::test {
namespace {

using namespace std::chrono_literals;
using verbs::Access;
using verbs::Completion;
using verbs::ConnectState;
using verbs::LinkEnd;
using verbs::PostResult;
using verbs::ReadStatus;
using verbs::Status;

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
  options.confirm_rtr = true;
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

TEST_CASE("a connection to be confirmed fails when the peer's RNIC never answers, or goes") {
  SoftOptions options;
  options.confirm_rtr = true;
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

// RFC 5044, section 3: DDP MUST NOT post more than 64768 bytes in one ULPDU; receivers may have no room for
// more.
TEST_CASE("no FPDU is longer than every receiver takes") {
  const uint32_t wanted = GENERATE(0u, 65535u, 5000u);
  RawPeer peer = MakeRawPeer(kQp, {.max_ulpdu = wanted}, "00 01 0000");
  peer.Send(Fpdu({.last = true, .opcode = 3, .msn = 1}));
  peer.Run();
  const auto data = Pattern(200000);
  const Bytes payload(data);
  REQUIRE(peer.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)}) == PostResult::kOk);
  std::vector<std::byte> got;
  while (!peer.qp->Flush()) Append(&got, peer.Receive());
  Append(&got, peer.Receive());
  uint32_t longest = 0;
  for (size_t at = 0; at < got.size();) {
    const auto ulpdu =
        static_cast<uint32_t>(std::to_integer<int>(got[at]) << 8 | std::to_integer<int>(got[at + 1]));
    longest = std::max(longest, ulpdu);
    at += kMpaLengthSize + ulpdu + PadSize(ulpdu) + kCrcSize;
  }
  CHECK(longest == (wanted == 5000 ? 5000 : 64768));
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
    CHECK(z->Step(Now()) == ConnectState::kFailed);
    CHECK(z->cause().text == "no MPA Reply: wrong key");
  }
  SECTION("responders time out") {
    auto z = Listen(fds[1].value, {.startup_timeout = 3s}, Now());
    CHECK(z->Step(Now()) == ConnectState::kInProgress);
    CHECK(z->interest().read);
    CHECK(z->Step(z->deadline()) == ConnectState::kFailed);
    CHECK(z->cause().text == "MPA start-up timed out");
    CHECK(z->deadline() == kNever);
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

TEST_CASE("the end of a stream") {
  RawPeer peer = MakeRawPeer(kQp);
  peer.Send(Fpdu({.last = true, .opcode = 3, .msn = 1}, AsBytes("x")));
  SECTION("FIN between messages") {
    ::shutdown(peer.fd.value, SHUT_WR);
    peer.Run();
    CHECK(peer.qp->cause().end == LinkEnd::kClosedByPeer);
    SECTION("our direction goes on") {
      const Bytes payload = AsBytes("still here");
      CHECK(peer.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)}) == PostResult::kOk);
      CHECK(peer.qp->Flush());
      peer.qp->Disconnect();
      CHECK(peer.qp->PostSend({.id = WorkId(1)}) == PostResult::kBroken);
      std::byte buffer[100];
      CHECK(::recv(peer.fd.value, buffer, sizeof buffer, MSG_WAITALL) == 36);
    }
  }
  SECTION("FIN in the middle of an FPDU") {
    peer.Send(Hex("0020"));
    ::shutdown(peer.fd.value, SHUT_WR);
    peer.Run();
    CHECK(peer.qp->cause().end == LinkEnd::kReset);
    CHECK(peer.qp->cause().text == "the peer closed the connection in the middle of a message");
  }
  SECTION("FIN in the middle of a message") {
    peer.Send(Fpdu({.opcode = 3, .msn = 2}, AsBytes("part")));
    ::shutdown(peer.fd.value, SHUT_WR);
    peer.Run();
    CHECK(peer.qp->cause().end == LinkEnd::kReset);
  }
  SECTION("reset, with work outstanding") {
    std::vector<std::byte> memory(10);
    const auto region = peer.qp->Register(memory, Access::kLocal);
    peer.Run();
    peer.qp->PostRdmaRead(
        {.id = WorkId(7), .local_stag = region->stag, .local_to = region->base_to, .length = 10});
    peer.qp->Flush();
    const linger reset{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(peer.fd.value, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    peer.fd.Close();
    peer.Run();
    CHECK(peer.qp->cause().end == LinkEnd::kReset);
    CHECK(peer.qp->cause().os_error == ECONNRESET);
  }
  Completion c;
  REQUIRE(peer.qp->PollCompletion(&c));
  CHECK(Text(c) == "x");
  peer.qp->Release(c.token);
  if (peer.qp->PollCompletion(&c)) {
    CHECK(c.id == WorkId(7));
    CHECK(c.status == Status::kFlushed);
  }
}

TEST_CASE("Abort: the peer sees a reset when the descriptor is closed, what is outstanding is flushed") {
  QpPair p = MakePair();
  const std::vector<std::byte> filler(8 << 20);
  const Bytes payload(filler);
  REQUIRE(p.a.qp->PostSend({.id = WorkId(5), .payload = std::span(&payload, 1)}) == PostResult::kOk);
  REQUIRE_FALSE(p.a.qp->Flush());
  CHECK(p.a.qp->interest().write);
  CHECK(p.a.qp->unsent_bytes() > 0);
  p.a.qp->Abort();
  CHECK(p.a.qp->unsent_bytes() == 0);
  Completion c;
  REQUIRE(p.a.qp->PollCompletion(&c));
  CHECK(c.id == WorkId(5));
  CHECK(c.status == Status::kFlushed);
  CHECK(p.a.qp->ReadLink() == ReadStatus::kEnded);
  CHECK(p.a.qp->PostSend({.id = WorkId(6)}) == PostResult::kBroken);
  const auto interest = p.a.qp->interest();
  CHECK_FALSE((interest.read || interest.write));
  p.a.fd.Close();
  while (p.z.qp->cause().end == LinkEnd::kOpen) p.z.qp->ReadLink();
  CHECK(p.z.qp->cause().end == LinkEnd::kReset);
}

TEST_CASE("Disconnect waits for what is unsent") {
  QpPair p = MakePair();
  std::vector<std::byte> filler(900000, std::byte{3});
  size_t sent = 0;
  while (p.a.qp->unsent_bytes() == 0) {
    const Bytes payload(filler);
    REQUIRE(p.a.qp->PostSend({.id = WorkId(5), .payload = std::span(&payload, 1)}) == PostResult::kOk);
    sent += payload.size();
    if (!p.a.qp->Flush()) p.a.qp->DetachBorrowed();
  }
  CHECK(p.a.qp->counters().copied_out > 0);
  CHECK(p.a.qp->counters().copied_out < filler.size());
  std::fill(filler.begin(), filler.end(), std::byte{4});
  p.a.qp->Disconnect();
  CHECK(p.a.qp->unsent_bytes() > 0);
  size_t received = 0;
  bool intact = true;
  REQUIRE(RunUntil(p.a, p.z, [&] {
    Completion c;
    while (p.z.qp->PollCompletion(&c)) {
      received += c.length;
      for (size_t i = 0; i < c.piece_count; ++i) {
        intact = intact && std::all_of(c.pieces[i].begin(), c.pieces[i].end(),
                                       [](std::byte b) { return b == std::byte{3}; });
      }
      p.z.qp->Release(c.token);
    }
    return p.z.qp->cause().end != LinkEnd::kOpen;
  }));
  CHECK(received == sent);
  CHECK(intact);
  CHECK(p.z.qp->cause().end == LinkEnd::kClosedByPeer);
}

TEST_CASE("the local mistakes of a poster complete with an error and harm nothing") {
  QpPair p = MakePair();
  std::vector<std::byte> memory(10);
  const auto region = p.a.qp->Register(memory, Access::kLocal);
  CHECK(p.a.qp->PostRdmaRead({.id = WorkId(1), .local_stag = STag(3), .length = 1}) == PostResult::kOk);
  CHECK(p.a.qp->PostRdmaRead(
            {.id = WorkId(2), .local_stag = region->stag, .local_to = region->base_to + 1, .length = 10}) ==
        PostResult::kOk);
  Completion c;
  for (const uint64_t id : {1u, 2u}) {
    REQUIRE(p.a.qp->PollCompletion(&c));
    CHECK(c.id == WorkId(id));
    CHECK(c.status == Status::kLocalError);
  }
  REQUIRE(p.a.Send("fine") == PostResult::kOk);
  CHECK(Text(NextCompletion(p.z, p.a)) == "fine");
}

TEST_CASE("a full queue is no failure") {
  QpPair p = MakePair();
  PostResult result = PostResult::kOk;
  size_t posted = 0;
  for (; posted < 10000 && result == PostResult::kOk; ++posted) result = p.a.qp->PostSend({.id = WorkId(1)});
  CHECK(result == PostResult::kNoResource);
  CHECK(p.a.qp->Flush());
  CHECK(p.a.qp->PostSend({.id = WorkId(1)}) == PostResult::kOk);
}

TEST_CASE("STags are not guessed from one another") {
  QpPair p = MakePair();
  std::vector<std::byte> memory(10);
  std::vector<uint32_t> stags;
  for (int i = 0; i < 100; ++i) {
    const auto region = p.a.qp->Register(memory, Access::kRemoteRead);
    REQUIRE(region);
    stags.push_back(region->stag.value() >> 12);
    p.a.qp->Deregister(region->stag);
    CHECK_FALSE(p.a.qp->IsRegistered(region->stag));
  }
  std::sort(stags.begin(), stags.end());
  CHECK(std::unique(stags.begin(), stags.end()) - stags.begin() > 95);
}

TEST_CASE("a sleeping reader: others post, flush, register and release meanwhile") {
  PairOptions options;
  options.blocking = true;
  options.a_qp = options.z_qp = {.receive_buffer_size = 1 << 20, .initial_receives = 100000};
  QpPair p = MakePair(options);
  constexpr int kMessages = 300;
  std::mutex mutex;  // the owner's lock of z
  int received = 0;
  std::thread reader([&] {
    std::unique_lock lock(mutex);
    verbs::DroppedLock dropped(lock);
    while (received < kMessages) {
      if (p.z.qp->ReadLinkBlocking(dropped, verbs::SleeperMemory::kOthers) == ReadStatus::kEnded) break;
      Completion c;
      while (p.z.qp->PollCompletion(&c)) {
        if (c.opcode != verbs::Opcode::kReceive) continue;
        const std::string text = Text(c);
        received += std::all_of(text.begin(), text.end(), [&](char x) { return x == text[0]; }) ? 1 : 1000000;
        p.z.qp->Release(c.token);
      }
    }
  });
  std::thread writer([&] {
    std::vector<std::byte> memory(100);
    for (int i = 0; i < kMessages; ++i) {
      const std::unique_lock lock(mutex);
      const auto region = p.z.qp->Register(memory, Access::kRemoteWrite);
      const Bytes payload = AsBytes("back");
      p.z.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)});
      if (!p.z.qp->Flush()) p.z.qp->DetachBorrowed();
      p.z.qp->PostReceives(1);
      p.z.qp->Deregister(region->stag);
    }
  });
  size_t back = 0;
  for (int i = 0; i < kMessages; ++i) {
    const std::string text(static_cast<size_t>(1 + i * 331 % 50000), static_cast<char>('a' + i % 26));
    const Bytes payload = AsBytes(text);
    p.a.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)});
    while (!p.a.qp->Flush()) {
      pollfd fd{.fd = p.a.fd.value, .events = POLLOUT | POLLIN, .revents = 0};
      ::poll(&fd, 1, 1000);
      p.a.qp->ReadLink();
    }
    Completion c;
    while (p.a.qp->PollCompletion(&c)) {
      ++back;
      p.a.qp->Release(c.token);
    }
  }
  reader.join();
  writer.join();
  CHECK(received == kMessages);
  while (back < kMessages) {
    pollfd fd{.fd = p.a.fd.value, .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&fd, 1, 5000) == 1);
    p.a.qp->ReadLink();
    Completion c;
    while (p.a.qp->PollCompletion(&c)) {
      ++back;
      p.a.qp->Release(c.token);
    }
  }
}

TEST_CASE("Abort wakes a sleeping reader") {
  PairOptions options;
  options.blocking = true;
  QpPair p = MakePair(options);
  p.z.qp->ReadLink();  // the RTR
  std::mutex mutex;
  bool asleep = false;
  ReadStatus status{};
  std::thread reader([&] {
    std::unique_lock lock(mutex);
    verbs::DroppedLock dropped(lock);
    asleep = true;
    status = p.z.qp->ReadLinkBlocking(dropped, verbs::SleeperMemory::kOthers);
  });
  for (;;) {
    // With the lock in hand and the flag set, the reader is inside its read.
    const std::unique_lock lock(mutex);
    if (!asleep) continue;
    p.z.qp->Abort();
    break;
  }
  reader.join();
  CHECK(status == ReadStatus::kEnded);
}

TEST_CASE("many QueuePairs in many threads share what the process shares") {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    auto pair = std::make_shared<QpPair>(MakePair());
    threads.emplace_back([pair] {
      const std::string text(70000, 'q');
      std::vector<std::byte> memory(100);
      for (int i = 0; i < 50; ++i) {
        const Bytes payload = AsBytes(text);
        pair->a.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)});
        if (!pair->a.qp->Flush()) pair->a.qp->DetachBorrowed();
        const auto region = pair->z.qp->Register(memory, Access::kRemoteRead);
        Completion c;
        while (!pair->z.qp->PollCompletion(&c)) {
          pair->z.qp->ReadLink();
          pair->a.qp->Flush();
        }
        pair->z.qp->Release(c.token);
        pair->z.qp->PostReceives(1);
        pair->z.qp->Deregister(region->stag);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sdp::iwarp::test
