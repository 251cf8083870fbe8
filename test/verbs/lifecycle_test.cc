// How connections end, and what the owner may rely on in between.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "test/verbs/changed_link_calls.h"
#include "test/verbs/qp_pair.h"
#include "test/verbs/raw_peer.h"
#include "verbs/softiwarp/proto/fpdu_reader.h"

namespace sdp::iwarp::test {
namespace {

using verbs::Access;
using verbs::Completion;
using verbs::LinkEnd;
using verbs::PostResult;
using verbs::ReadStatus;
using verbs::Status;

constexpr verbs::QpOptions kQp{.receive_buffer_size = 100000, .initial_receives = 100};

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

TEST_CASE("Abort: the peer sees a reset, what is outstanding is flushed, and the descriptor stays") {
  const bool at_once = GENERATE(true, false);
  std::optional<ChangedLinkCalls> without;  // as behind a seccomp filter
  if (!at_once) without.emplace([](LinkCalls& calls) { calls.connect = nullptr; });
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
  pollfd theirs{.fd = p.z.fd.value, .events = POLLRDHUP, .revents = 0};
  CHECK((::poll(&theirs, 1, 0) == 1) == at_once);
  if (!at_once) p.a.fd.Close();
  while (p.z.qp->cause().end == LinkEnd::kOpen) p.z.qp->ReadLink();
  CHECK(p.z.qp->cause().end == LinkEnd::kReset);
}

TEST_CASE("a link that ends in the middle of a message is reset, too: nothing more can be said on it") {
  RawPeer peer = MakeRawPeer(kQp);
  peer.Send(Fpdu({.last = true, .opcode = 3, .msn = 1}, AsBytes("x")));
  peer.Send(Hex("0020"));
  ::shutdown(peer.fd.value, SHUT_WR);
  peer.Run();
  pollfd theirs{.fd = peer.fd.value, .events = 0, .revents = 0};
  CHECK(::poll(&theirs, 1, 0) == 1);
  CHECK((theirs.revents & POLLHUP) != 0);
}

// The link takes one piece of each write, and at most so much of it.
size_t most_per_write = SIZE_MAX;

ssize_t SendPiece(int fd, const msghdr* message, int flags) {
  return ::send(fd, message->msg_iov[0].iov_base, std::min(message->msg_iov[0].iov_len, most_per_write),
                flags);
}

TEST_CASE("something is unsent until the link has the end of the last frame, too") {
  const ChangedLinkCalls pieces([](LinkCalls& calls) {
    calls.sendmsg = SendPiece;
    calls.send = nullptr;
  });
  QpPair p = MakePair();
  const std::string text(100'000, 't');  // two frames: a message's header is in its first
  const Bytes payload = AsBytes(text);
  REQUIRE(p.a.qp->PostSend({.id = WorkId(5), .payload = {&payload, 1}}) == PostResult::kOk);
  int flushes = 0;
  while (!p.a.qp->Flush()) {
    REQUIRE(++flushes < 1000);
    CHECK(p.a.qp->interest().write);
    CHECK(p.a.qp->unsent_bytes() != 0);
    most_per_write = p.a.qp->unsent_bytes() < 20 ? 1 : 10'000;
    p.z.qp->ReadLink();
  }
  CHECK(flushes > 0);
  CHECK(p.a.qp->unsent_bytes() == 0);
  CHECK(Text(NextCompletion(p.z, p.a)) == text);
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

}  // namespace
}  // namespace sdp::iwarp::test
