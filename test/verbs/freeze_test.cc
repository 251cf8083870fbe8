// A queue pair that is frozen and thawed at any point of its streams goes on as if nothing had happened.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "test/verbs/qp_pair.h"
#include "test/verbs/raw_peer.h"
#include "verbs/softiwarp/link_calls.h"
#include "verbs/softiwarp/proto/fpdu_reader.h"

namespace sdp::iwarp::test {
namespace {

using verbs::Completion;
using verbs::LinkEnd;
using verbs::PostResult;
using verbs::ReadStatus;

// What a test's link does: at most `quota` bytes a call, then EAGAIN once.
struct Link {
  static inline size_t quota = SIZE_MAX;
  static inline bool rest = false;
  static LinkCalls Calls() {
    LinkCalls calls = link_calls();
    calls.recvmsg = [](int fd, msghdr* m, int flags) { return Limited(fd, m, flags, ::recvmsg); };
    calls.sendmsg = [](int fd, const msghdr* m, int flags) {
      msghdr copy = *m;
      return Limited(fd, &copy, flags, [](int f, msghdr* h, int l) { return ::sendmsg(f, h, l); });
    };
    calls.recv = nullptr;
    calls.send = nullptr;
    return calls;
  }
  template <typename F>
  static ssize_t Limited(int fd, msghdr* m, int flags, F&& call) {
    if (quota == SIZE_MAX) return call(fd, m, flags);
    rest = !rest;
    if (!rest) {
      errno = EAGAIN;
      return -1;
    }
    iovec parts[160];
    size_t left = quota;
    size_t count = 0;
    for (; count < m->msg_iovlen && left > 0; ++count) {
      parts[count] = m->msg_iov[count];
      parts[count].iov_len = std::min(parts[count].iov_len, left);
      left -= parts[count].iov_len;
    }
    m->msg_iov = parts;
    m->msg_iovlen = count;
    return call(fd, m, flags);
  }
};

struct LimitedLink {
  const LinkCalls before = link_calls();
  explicit LimitedLink() { SetLinkCalls(Link::Calls()); }
  ~LimitedLink() {
    Link::quota = SIZE_MAX;
    SetLinkCalls(before);
  }
};

void Move(Side* side) {
  REQUIRE(side->qp->portable()->freezable());
  const auto frozen = side->qp->portable()->Freeze();
  // Whoever owned the memory that was lent or referenced does what he likes with it.
  side->qp = Thaw(side->fd.value, frozen);
  REQUIRE(side->qp != nullptr);
  REQUIRE(side->qp->portable()->Freeze() == frozen);
}

TEST_CASE("a stream of messages goes on byte for byte, frozen at every kind of point") {
  PairOptions options;
  options.a.want_crc = GENERATE(false, true);
  options.a.want_markers = GENERATE(false, true);
  options.z.want_markers = GENERATE(false, true);
  options.a.max_ulpdu = GENERATE(0u, 400u);
  const size_t quota = GENERATE(7u, 97u, 4099u);
  CAPTURE(options.a.want_crc, options.a.want_markers, options.z.want_markers, options.a.max_ulpdu, quota);
  QpPair p = MakePair(options);
  LimitedLink limited;
  Link::quota = quota;

  const size_t rounds = quota < 50 ? 12 : 40;
  std::vector<std::string> sent, got;
  std::minstd_rand random(static_cast<uint32_t>(quota));
  for (size_t i = 0; i < rounds; ++i) {
    const auto bytes = Pattern(i % 5 == 0 ? i : random() % (quota * 30), static_cast<uint32_t>(i));
    sent.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  size_t posted = 0;
  size_t moves = 0;
  for (size_t step = 0; got.size() < sent.size(); ++step) {
    REQUIRE(step < 200000);
    if (posted < sent.size() && step % 3 == 0) {
      std::string body = sent[posted];
      const Bytes payload = AsBytes(body).subspan(std::min<size_t>(body.size(), 20));
      REQUIRE(p.a.qp->PostSend({.id = WorkId(posted),
                                .signaled = posted % 4 == 0,
                                .header = AsBytes(body).first(std::min<size_t>(body.size(), 20)),
                                .payload = std::span(&payload, 1)}) == PostResult::kOk);
      ++posted;
      p.a.qp->Flush();
      p.a.qp->DetachBorrowed();
      std::fill(body.begin(), body.end(), '#');
    } else {
      p.a.qp->Flush();
    }
    p.a.qp->ReadLink();
    p.z.qp->ReadLink();
    Completion c;
    while (p.a.qp->PollCompletion(&c)) CHECK(c.status == verbs::Status::kSuccess);
    while (p.z.qp->PollCompletion(&c)) {
      got.push_back(Text(c));
      if (random() % 2 == 0) p.z.qp->Release(c.token);  // what is not released goes with the old one
    }
    if (random() % 2 == 0) Move(&p.a), ++moves;
    if (random() % 2 == 0) Move(&p.z), ++moves;
  }
  CHECK(got == sent);
  CHECK(moves > 20);
  CHECK(p.a.qp->cause().end == LinkEnd::kOpen);
  CHECK(p.z.qp->cause().end == LinkEnd::kOpen);

  Link::quota = SIZE_MAX;
  p.a.qp->Disconnect();
  Move(&p.a);
  REQUIRE(RunUntil(p.a, p.z, [&] { return !p.z.qp->interest().read; }));
  CHECK(p.z.qp->cause().end == LinkEnd::kClosedByPeer);
  Move(&p.z);
  CHECK(p.z.qp->cause().end == LinkEnd::kClosedByPeer);
  CHECK(p.z.qp->cause().text == "closed by the peer");
  CHECK(p.z.qp->ReadLink() == ReadStatus::kEnded);
}

TEST_CASE("only a quiet queue pair is frozen") {
  QpPair p = MakePair();
  CHECK(p.a.qp->portable()->freezable());
  std::vector<std::byte> memory(100);
  const auto region = p.a.qp->Register(memory, verbs::Access::kLocal);
  CHECK_FALSE(p.a.qp->portable()->freezable());
  const auto source = p.z.qp->Register(memory, verbs::Access::kRemoteRead);
  REQUIRE(p.a.qp->PostRdmaRead({.id = WorkId(1),
                                .local_stag = region->stag,
                                .local_to = region->base_to,
                                .length = 100,
                                .remote_stag = source->stag,
                                .remote_to = source->base_to}) == PostResult::kOk);
  p.a.qp->Deregister(region->stag);
  CHECK_FALSE(p.a.qp->portable()->freezable());
  p.z.qp->Deregister(source->stag);
  CHECK(p.z.qp->portable()->freezable());
  REQUIRE(p.z.Send("x") == PostResult::kOk);
  REQUIRE(RunUntil(p.a, p.z, [&] { return p.a.qp->counters().fpdus_in > 0; }));
  CHECK_FALSE(p.a.qp->portable()->freezable());  // a completion waits
}

TEST_CASE("what waits for the initiator's first FPDU waits on") {
  PairOptions options;
  options.a.peer_to_peer = false;
  QpPair p = MakePair(options);
  const std::string text = "second";
  const Bytes payload = AsBytes(text);
  REQUIRE(p.z.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)}) == PostResult::kOk);
  p.z.qp->DetachBorrowed();
  Move(&p.z);
  CHECK_FALSE(p.z.qp->Flush());
  CHECK(p.z.qp->counters().bytes_out == 0);
  REQUIRE(p.a.Send("first") == PostResult::kOk);
  CHECK(Text(NextCompletion(p.z, p.a)) == "first");
  CHECK(Text(NextCompletion(p.a, p.z)) == text);
}

TEST_CASE("receives posted, of two sizes, move along") {
  RawPeer peer = MakeRawPeer({.receive_buffer_size = 10, .initial_receives = 1});
  REQUIRE(peer.qp->SetReceiveBufferSize(20, 1));
  peer.qp->PostReceives(1);
  Side side{.fd = std::move(peer.qp_fd), .qp = std::move(peer.qp)};
  Move(&side);
  peer.qp = std::move(side.qp);
  const auto body = Pattern(20);
  peer.Send(Fpdu({.last = true, .opcode = 3, .msn = 1}, body));
  peer.Send(Fpdu({.last = true, .opcode = 3, .msn = 2}, Bytes(body).first(10)));
  peer.Send(Fpdu({.last = true, .opcode = 3, .msn = 3}, {}));
  peer.Run();
  Completion c;
  REQUIRE(peer.qp->PollCompletion(&c));
  CHECK(c.length == 20);
  REQUIRE(peer.qp->PollCompletion(&c));
  CHECK(c.length == 10);
  CHECK_FALSE(peer.qp->PollCompletion(&c));
  CHECK(peer.qp->cause().text.find("no receive posted") != std::string::npos);
}

TEST_CASE("a segment that was judged wrong, its CRC not yet here, stays wrong") {
  RawPeer peer = MakeRawPeer({.receive_buffer_size = 100, .initial_receives = 1}, {.want_crc = true});
  auto wrong = Fpdu({.last = true, .opcode = 3, .msn = 9}, Pattern(50), true);
  const size_t half = wrong.size() / 2;
  peer.Send(Bytes(wrong).first(half));
  peer.Run();
  Side side{.fd = std::move(peer.qp_fd), .qp = std::move(peer.qp)};
  Move(&side);
  peer.qp = std::move(side.qp);
  CHECK(peer.qp->cause().end == LinkEnd::kOpen);
  peer.Send(Bytes(wrong).subspan(half));
  peer.Run();
  CHECK(peer.qp->cause().end == LinkEnd::kTerminated);
  CHECK(peer.qp->cause().text.find("MSN 9") != std::string::npos);
}

TEST_CASE("after a violation nothing is read any more, whatever had come behind it") {
  RawPeer peer = MakeRawPeer({.receive_buffer_size = 100, .initial_receives = 1}, {.want_markers = true});
  const std::vector<std::byte> nonsense(6000, std::byte{0x21});
  peer.Send(nonsense);
  peer.Run();
  Side side{.fd = std::move(peer.qp_fd), .qp = std::move(peer.qp)};
  CHECK(side.qp->cause().end == LinkEnd::kTerminated);
  Move(&side);
  CHECK(side.qp->cause().end == LinkEnd::kTerminated);
  CHECK(side.qp->cause().local);
  CHECK(side.qp->ReadLink() == ReadStatus::kEnded);
}

TEST_CASE("bytes that are no frozen queue pair are refused") {
  PairOptions options;
  options.z.want_markers = true;
  QpPair p = MakePair(options);
  REQUIRE(p.a.Send(std::string(3000, 'x')) == PostResult::kOk);
  p.z.qp->ReadLink();
  Completion c;
  while (p.z.qp->PollCompletion(&c)) {
  }
  const auto whole = p.z.qp->portable()->Freeze();
  CHECK(Thaw(p.z.fd.value, {}) == nullptr);
  for (size_t size = 0; size < whole.size(); ++size)
    CHECK(Thaw(p.z.fd.value, Bytes(whole).first(size)) == nullptr);
  auto longer = whole;
  longer.push_back({});
  CHECK(Thaw(p.z.fd.value, longer) == nullptr);
  auto other = whole;
  other[5] ^= std::byte{1};  // the version
  CHECK(Thaw(p.z.fd.value, other) == nullptr);
}

TEST_CASE("every seed of the fuzzer is a queue pair of today's format") {
  const QpPair p = MakePair({});
  size_t seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SDP_THAW_CORPUS)) {
    INFO(entry.path());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string seed{std::istreambuf_iterator<char>(file), {}};
    REQUIRE(seed.size() > 2);
    const size_t size = static_cast<unsigned char>(seed[0]) << 8 | static_cast<unsigned char>(seed[1]);
    CHECK(Thaw(p.z.fd.value, std::as_bytes(std::span(seed)).subspan(2, std::min(size, seed.size() - 2))) !=
          nullptr);
    ++seeds;
  }
  CHECK(seeds >= 16);
}

TEST_CASE("who reads little has about one message at a time, and all of them in the end") {
  PairOptions options;
  options.z.want_markers = GENERATE(false, true);
  QpPair p = MakePair(options);
  std::vector<std::string> sent, got;
  for (size_t i = 0; i < 40; ++i) {
    const auto bytes = Pattern(i % 4 == 3 ? 100 + i : 64'000, static_cast<uint32_t>(i));
    sent.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    REQUIRE(p.a.Send(sent.back()) == PostResult::kOk);
    p.a.qp->DetachBorrowed();
  }
  while (got.size() < sent.size()) {
    p.a.qp->Flush();
    pollfd ready{.fd = p.z.fd.value, .events = POLLIN, .revents = 0};
    REQUIRE(poll(&ready, 1, 10'000) == 1);
    p.z.qp->ReadSome();
    size_t bytes = 0;
    for (Completion c; p.z.qp->PollCompletion(&c); p.z.qp->Release(c.token)) {
      got.push_back(Text(c));
      bytes += c.length;
    }
    CHECK(bytes <= 3 * 64'000);  // the rest of one, one, and a small one between them
    if (got.size() % 3 == 0) Move(&p.z);
  }
  CHECK(got == sent);
}

}  // namespace
}  // namespace sdp::iwarp::test
