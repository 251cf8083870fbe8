// What rnic.h promises, over every pair of backends this host has: the embedded RNIC, a kernel RNIC, and one
// against the other.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "test/verbs/rnic_pairs.h"

namespace sdp::verbs::test {
namespace {

// The pairs, each once without and once with CRC; false: this host has not got it.
bool Choose(Options* options) {
  const int choice = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  options->a = choice == 1 || choice == 2 || choice == 5 ? Backend::kIbv : Backend::kSoft;
  options->z = choice == 1 || choice == 3 || choice == 6 ? Backend::kIbv : Backend::kSoft;
  options->crc = choice >= 4 && choice <= 6;
  if (choice == 7) options->a = options->z = Backend::kLocal;
  return Have(options->a) && Have(options->z);
}

#define OVER_EVERY_PAIR(options) \
  Options options;               \
  if (!Choose(&options)) return; \
  CAPTURE(ToString(options.a), ToString(options.z), options.crc)

RnicPair Connected(const Options& options) {
  RnicPair pair = Meet(options);
  INFO(pair.a.connector->cause().text << " / " << pair.z.connector->cause().text);
  REQUIRE(pair.a.qp != nullptr);
  REQUIRE(pair.z.qp != nullptr);
  return pair;
}

// The initiator's first message, which frees every kind of responder.
RnicPair Open(const Options& options) {
  RnicPair pair = Connected(options);
  REQUIRE(Send(pair.a, "first") == PostResult::kOk);
  const Completion c = Next(pair.z, pair);
  CHECK(Text(c) == "first");
  pair.z.qp->Release(c.token);
  pair.z.qp->PostReceives(1);
  return pair;
}

std::vector<std::byte> Pattern(size_t size, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() >> 8);
  return bytes;
}

std::string AsText(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_CASE("private data travels both ways, up to SDP's sizes") {
  OVER_EVERY_PAIR(options);
  options.hello.assign(32, 'h');
  options.welcome.assign(28, 'w');
  RnicPair pair = Connected(options);
  const Bytes welcome = pair.a.connector->peer_private_data();
  CHECK(std::string(reinterpret_cast<const char*>(welcome.data()), welcome.size()) == options.welcome);
  CHECK(pair.a.qp->facts().ord > 0);
  CHECK(pair.z.qp->facts().ird > 0);
  const char* const link = options.a == Backend::kIbv     ? "rdma"
                           : options.a == Backend::kLocal ? "local"
                                                          : "tcp";
  CHECK(std::string(pair.a.qp->facts().link) == link);
}

TEST_CASE("the accepting side may speak first") {
  OVER_EVERY_PAIR(options);
  RnicPair pair = Connected(options);
  REQUIRE(Send(pair.z, "banner") == PostResult::kOk);
  const Completion c = Next(pair.a, pair);
  CHECK(Text(c) == "banner");
  pair.a.qp->Release(c.token);
}

TEST_CASE("a rejection ends both sides") {
  OVER_EVERY_PAIR(options);
  options.reject = true;
  RnicPair pair = Meet(options);
  CHECK(pair.a.state == ConnectState::kRejected);
  CHECK(pair.z.state == ConnectState::kRejected);
}

TEST_CASE("Sends arrive whole and in order, whatever their size") {
  OVER_EVERY_PAIR(options);
  RnicPair pair = Open(options);
  for (const size_t size : {1u, 2u, 63u, 64u, 65u, 1000u, 2048u, 2049u, 4095u, 4096u, 32784u, 65536u}) {
    CAPTURE(size);
    const std::string text = AsText(Pattern(size, static_cast<uint32_t>(size)));
    for (auto [from, to] : {std::pair(&pair.a, &pair.z), std::pair(&pair.z, &pair.a)}) {
      REQUIRE(Send(*from, text, /*signaled=*/true) == PostResult::kOk);
      const Completion got = Next(*to, pair);
      REQUIRE(got.opcode == Opcode::kReceive);
      CHECK(got.length == size);
      CHECK((Text(got) == text));
      to->qp->Release(got.token);
      to->qp->PostReceives(1);
      const Completion sent = Next(*from, pair);
      CHECK(sent.opcode == Opcode::kSend);
      CHECK(sent.status == Status::kSuccess);
    }
  }
}

TEST_CASE(
    "header and gathered payload are one message, and the owner's memory is free after DetachBorrowed") {
  OVER_EVERY_PAIR(options);
  RnicPair pair = Open(options);
  std::string header(16, 'h');
  std::string one(5000, '1');
  std::string two(20000, '2');
  const std::string whole = header + one + two;
  const auto as_bytes = [](const std::string& s) { return std::as_bytes(std::span(s.data(), s.size())); };
  for (int i = 0; i < 20; ++i) {
    const Bytes parts[] = {as_bytes(one), {}, as_bytes(two)};
    REQUIRE(pair.a.qp->PostSend({.id = WorkId(2), .header = as_bytes(header), .payload = parts}) ==
            PostResult::kOk);
  }
  if (!pair.a.qp->Flush()) pair.a.qp->DetachBorrowed();
  std::fill(header.begin(), header.end(), 'x');
  std::fill(one.begin(), one.end(), 'x');
  std::fill(two.begin(), two.end(), 'x');
  for (int i = 0; i < 20; ++i) {
    const Completion got = Next(pair.z, pair);
    CHECK((Text(got) == whole));
    pair.z.qp->Release(got.token);
    pair.z.qp->PostReceives(1);
  }
  CHECK(pair.a.qp->unsent_bytes() == 0);
}

TEST_CASE("many messages both ways at once, as many as there are receives, some kept for long") {
  OVER_EVERY_PAIR(options);
  if (options.crc && (options.a == Backend::kIbv) != (options.z == Backend::kIbv)) {
    // siw_get_trailer (Linux 6.1) puts every part of a trailer, padding and CRC, at its beginning: of one
    // that comes in two socket buffers, as an FPDU's may that TCP cuts anywhere, the second part lies over
    // the first, and the CRC is taken for wrong.
    std::printf(
        "skipped: %s to %s with CRC: the kernel's siw misreads an FPDU's CRC that comes in two socket "
        "buffers, as under load some do\n",
        ToString(options.a), ToString(options.z));
    return;
  }
  RnicPair pair = Open(options);
  std::string sent[2], got[2];
  std::vector<ReceiveToken> kept[2];
  uint32_t credit[2] = {30, 30};
  uint32_t posted = 0;
  constexpr uint32_t kMessages = 300;
  uint32_t next[2] = {0, 0};
  End* const ends[2] = {&pair.a, &pair.z};
  const bool done = RunUntil(pair, [&] {
    for (int i = 0; i < 2; ++i) {
      while (credit[i] > 0 && next[i] < kMessages) {
        const std::string text =
            AsText(Pattern(1 + next[i] * 977 % 40000, next[i] * 2 + static_cast<uint32_t>(i)));
        REQUIRE(Send(*ends[i], text) == PostResult::kOk);
        sent[i] += text;
        --credit[i];
        ++next[i];
      }
      Completion c;
      while (ends[1 - i]->qp->PollCompletion(&c)) {
        if (c.opcode != Opcode::kReceive) continue;
        got[i] += Text(c);
        auto& held = kept[1 - i];
        held.push_back(c.token);
        if (held.size() > 12) {  // in another order than they came
          ends[1 - i]->qp->Release(held.back());
          held.pop_back();
        }
        ends[1 - i]->qp->PostReceives(1);
        ++posted;
        ++credit[i];
      }
    }
    return got[0].size() == sent[0].size() && got[1].size() == sent[1].size() && next[0] == kMessages &&
           next[1] == kMessages;
  });
  INFO(pair.a.qp->cause().text << " / " << pair.z.qp->cause().text << " / " << next[0] << " " << next[1]);
  REQUIRE(done);
  CHECK((got[0] == sent[0]));
  CHECK((got[1] == sent[1]));
  CHECK(posted == 2 * kMessages);
  for (int i = 0; i < 2; ++i) {
    for (const ReceiveToken token : kept[i]) ends[i]->qp->Release(token);
  }
}

TEST_CASE("RDMA Write lands before the Send that tells of it, RDMA Reads complete in order") {
  OVER_EVERY_PAIR(options);
  RnicPair pair = Open(options);
  const bool from_a = GENERATE(true, false);
  CAPTURE(from_a);
  End& self = from_a ? pair.a : pair.z;
  End& peer = from_a ? pair.z : pair.a;
  const auto data = Pattern(700000, 3);
  std::vector<std::byte> target(800000);
  const auto writable = peer.qp->Register(target, Access::kRemoteWrite);
  REQUIRE(writable);
  const Bytes parts[] = {Bytes(data).first(100001), Bytes(data).subspan(100001)};
  REQUIRE(self.qp->PostRdmaWrite({.id = WorkId(3),
                                  .signaled = true,
                                  .local = parts,
                                  .remote_stag = writable->stag,
                                  .remote_to = writable->base_to + 1000}) == PostResult::kOk);
  REQUIRE(Send(self, "written") == PostResult::kOk);
  const Completion told = Next(peer, pair);
  CHECK(Text(told) == "written");
  peer.qp->Release(told.token);
  CHECK(std::memcmp(target.data() + 1000, data.data(), data.size()) == 0);
  CHECK(target[999] == std::byte{0});
  CHECK(target[1000 + data.size()] == std::byte{0});
  const Completion written = Next(self, pair);
  CHECK(written.opcode == Opcode::kRdmaWrite);
  CHECK(written.id == WorkId(3));
  peer.qp->Deregister(writable->stag);
  CHECK_FALSE(peer.qp->IsRegistered(writable->stag));

  const auto readable = peer.qp->Register(target, Access::kRemoteRead);
  std::vector<std::byte> sink(data.size());
  const auto local = self.qp->Register(sink, Access::kLocal);
  REQUIRE(readable);
  REQUIRE(local);
  constexpr uint32_t kReads = 20;
  const auto step = static_cast<uint32_t>(data.size() / kReads);
  for (uint32_t i = 0; i < kReads; ++i) {
    REQUIRE(self.qp->PostRdmaRead({.id = WorkId(100 + i),
                                   .local_stag = local->stag,
                                   .local_to = local->base_to + i * step,
                                   .length = step,
                                   .remote_stag = readable->stag,
                                   .remote_to = readable->base_to + 1000 + i * step}) == PostResult::kOk);
  }
  self.qp->Flush();
  for (uint32_t i = 0; i < kReads; ++i) {
    const Completion read = Next(self, pair);
    CHECK(read.opcode == Opcode::kRdmaRead);
    CHECK(read.status == Status::kSuccess);
    CHECK(read.id == WorkId(100 + i));
  }
  CHECK((sink == data));
}

TEST_CASE("after Send with Invalidate the STag is of no use to the peer") {
  OVER_EVERY_PAIR(options);
  RnicPair pair = Open(options);
  std::vector<std::byte> memory(100);
  const auto region = pair.z.qp->Register(memory, static_cast<Access>(3));
  REQUIRE(region);
  const Bytes note = std::as_bytes(std::span("done", 4));
  REQUIRE(
      pair.a.qp->PostSend(
          {.id = WorkId(4), .solicited = true, .invalidate = region->stag, .payload = std::span(&note, 1)}) ==
      PostResult::kOk);
  pair.a.qp->Flush();
  const Completion got = Next(pair.z, pair);
  CHECK(Text(got) == "done");
  pair.z.qp->Release(got.token);
  // Not every kernel provider names the STag; the owner deregisters then.
  if (options.z == Backend::kSoft) REQUIRE(got.invalidated);
  if (got.invalidated) {
    CHECK(*got.invalidated == region->stag);
    CHECK_FALSE(pair.z.qp->IsRegistered(region->stag));
  }
  const Bytes intrusion = std::as_bytes(std::span("overwritten", 11));
  pair.a.qp->PostRdmaWrite({.id = WorkId(5),
                            .local = std::span(&intrusion, 1),
                            .remote_stag = region->stag,
                            .remote_to = region->base_to});
  pair.a.qp->Flush();
  REQUIRE(RunUntil(pair, [&] {
    return pair.a.qp->cause().end != LinkEnd::kOpen && pair.z.qp->cause().end != LinkEnd::kOpen;
  }));
  CHECK(memory == std::vector<std::byte>(100));
  pair.z.qp->Deregister(region->stag);
}

TEST_CASE("the local mistakes of a poster complete with an error and harm nothing") {
  OVER_EVERY_PAIR(options);
  RnicPair pair = Open(options);
  std::vector<std::byte> memory(10);
  const auto region = pair.a.qp->Register(memory, Access::kLocal);
  CHECK(pair.a.qp->PostRdmaRead({.id = WorkId(1), .local_stag = STag(3), .length = 1}) == PostResult::kOk);
  CHECK(pair.a.qp->PostRdmaRead(
            {.id = WorkId(2), .local_stag = region->stag, .local_to = region->base_to + 1, .length = 10}) ==
        PostResult::kOk);
  for (const uint64_t id : {1u, 2u}) {
    Completion c;
    REQUIRE(pair.a.qp->PollCompletion(&c));
    CHECK(c.id == WorkId(id));
    CHECK(c.status == Status::kLocalError);
  }
  REQUIRE(Send(pair.a, "fine") == PostResult::kOk);
  CHECK(Text(Next(pair.z, pair)) == "fine");
}

TEST_CASE("Disconnect: everything sent before it arrives, then the orderly end") {
  OVER_EVERY_PAIR(options);
  options.qp.initial_receives = 64;
  RnicPair pair = Open(options);
  const std::string text(50000, 'd');
  for (int i = 0; i < 40; ++i) REQUIRE(Send(pair.a, text) == PostResult::kOk);
  pair.a.qp->Disconnect();
  CHECK(pair.a.qp->PostSend({.id = WorkId(9)}) == PostResult::kBroken);
  size_t received = 0;
  REQUIRE(RunUntil(pair, [&] {
    Completion c;
    while (pair.z.qp->PollCompletion(&c)) {
      received += c.length;
      pair.z.qp->Release(c.token);
    }
    return pair.z.qp->cause().end != LinkEnd::kOpen;
  }));
  CHECK(received == 40 * text.size());
  CHECK(pair.z.qp->cause().end == LinkEnd::kClosedByPeer);
}

TEST_CASE("Abort: what is outstanding is flushed, the peer sees the end") {
  OVER_EVERY_PAIR(options);
  RnicPair pair = Open(options);
  const std::string text(60000, 'x');
  for (int i = 0; i < 31; ++i) Send(pair.a, text);
  std::vector<std::byte> memory(100);
  const auto region = pair.a.qp->Register(memory, Access::kLocal);
  REQUIRE(region);
  pair.a.qp->Abort();
  CHECK(pair.a.qp->unsent_bytes() == 0);
  CHECK(pair.a.qp->ReadLink() == ReadStatus::kEnded);
  CHECK(pair.a.qp->PostSend({.id = WorkId(6)}) == PostResult::kBroken);
  CHECK(pair.a.qp->cause().end == LinkEnd::kReset);
  CHECK(pair.a.qp->cause().local);
  const Interest interest = pair.a.qp->interest();
  CHECK_FALSE((interest.read || interest.write));
  Completion c;
  while (pair.a.qp->PollCompletion(&c)) CHECK(c.status != Status::kRemoteError);
  pair.a.qp.reset();
  pair.a.fd.Close();
  REQUIRE(RunUntil(pair, [&] {
    while (pair.z.qp->PollCompletion(&c)) pair.z.qp->Release(c.token);
    return pair.z.qp->cause().end != LinkEnd::kOpen;
  }));
}

TEST_CASE("a peer that goes away flushes outstanding RDMA Reads") {
  OVER_EVERY_PAIR(options);
  RnicPair pair = Open(options);
  std::vector<std::byte> memory(100000);
  const auto region = pair.a.qp->Register(memory, Access::kLocal);
  std::vector<std::byte> theirs(100000);
  const auto remote = pair.z.qp->Register(theirs, Access::kRemoteRead);
  const STag stag = remote->stag;
  const uint64_t to = remote->base_to;
  pair.z.qp->Abort();
  pair.z.qp.reset();
  pair.z.fd.Close();
  const PostResult posted = pair.a.qp->PostRdmaRead({.id = WorkId(7),
                                                     .local_stag = region->stag,
                                                     .local_to = region->base_to,
                                                     .length = 100,
                                                     .remote_stag = stag,
                                                     .remote_to = to});
  pair.a.qp->Flush();
  REQUIRE(RunUntil(pair, [&] { return pair.a.qp->cause().end != LinkEnd::kOpen; }));
  if (posted == PostResult::kOk) {
    Completion c;
    REQUIRE(pair.a.qp->PollCompletion(&c));
    CHECK(c.id == WorkId(7));
    CHECK(c.status == Status::kFlushed);
  }
}

// Not a test: what a cache of registrations could save of a Zcopy transfer. Run it by its tag.
TEST_CASE("what registering memory costs beside moving it", "[.cost]") {
  Options options;
  options.a = options.z = Backend::kIbv;
  if (!Have(Backend::kIbv)) return;
  RnicPair pair = Open(options);
  constexpr int kRounds = 50;
  const auto per_round = [](auto body) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; ++i) body();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
           kRounds;
  };
  for (const uint32_t size : {64u << 10, 256u << 10, 1u << 20}) {
    std::vector<std::byte> source(size, std::byte{1});
    std::vector<std::byte> sink(size, std::byte{2});
    const double registering = per_round([&] {
      const auto region = pair.a.qp->Register(sink, Access::kLocal);
      REQUIRE(region);
      pair.a.qp->Deregister(region->stag);
    });
    const auto remote = pair.z.qp->Register(source, Access::kRemoteRead);
    const auto local = pair.a.qp->Register(sink, Access::kLocal);
    REQUIRE(remote);
    REQUIRE(local);
    const double moving = per_round([&] {
      REQUIRE(pair.a.qp->PostRdmaRead({.id = WorkId(8),
                                       .local_stag = local->stag,
                                       .local_to = local->base_to,
                                       .length = size,
                                       .remote_stag = remote->stag,
                                       .remote_to = remote->base_to}) == PostResult::kOk);
      pair.a.qp->Flush();
      REQUIRE(Next(pair.a, pair).status == Status::kSuccess);
    });
    std::printf("%7u bytes: register and deregister %8.1f us, RDMA Read %8.1f us\n", size, registering,
                moving);
    pair.a.qp->Deregister(local->stag);
    pair.z.qp->Deregister(remote->stag);
  }
}

TEST_CASE("nobody listens") {
  if (!Have(Backend::kIbv)) return;
  Options options;
  options.a = options.z = Backend::kIbv;
  options.reject = true;
  RnicPair pair = Meet(options);  // shows that the way is there
  CHECK(pair.a.state == ConnectState::kRejected);
  std::string why;
  sockaddr_storage nowhere{};
  nowhere.ss_family = AF_INET;  // 0.0.0.0, port 0
  CHECK(ibv::DeviceOf(reinterpret_cast<const sockaddr*>(&nowhere)).empty());
}

}  // namespace
}  // namespace sdp::verbs::test
