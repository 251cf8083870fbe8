// All operations between two QueuePairs over loopback TCP, under each framing.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "test/verbs/qp_pair.h"

namespace sdp::iwarp::test {
namespace {

using verbs::Access;
using verbs::Completion;
using verbs::LinkEnd;
using verbs::Opcode;
using verbs::PostResult;
using verbs::Status;

PairOptions Framing(int variant) {
  PairOptions options;
  options.a.want_crc = (variant & 1) != 0;
  options.a.want_markers = (variant & 2) != 0;
  options.z.want_markers = (variant & 4) != 0;
  if (variant >= 8) options.a.max_ulpdu = options.z.max_ulpdu = 500;
  return options;
}

void Exchange(QpPair& p, const std::string& text) {
  REQUIRE(p.a.Send(text, true) == PostResult::kOk);
  const Completion sent = NextCompletion(p.a, p.z);
  CHECK(sent.opcode == Opcode::kSend);
  CHECK(sent.status == Status::kSuccess);
  const Completion got = NextCompletion(p.z, p.a);
  REQUIRE(got.opcode == Opcode::kReceive);
  CHECK(got.length == text.size());
  CHECK(Text(got) == text);
  p.z.qp->Release(got.token);
  p.z.qp->PostReceives(1);
}

TEST_CASE("all opcodes between two QueuePairs") {
  const int variant = GENERATE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15);
  CAPTURE(variant);
  QpPair p = MakePair(Framing(variant));

  SECTION("Sends of many sizes") {
    for (const size_t size :
         {1u, 2u, 3u, 4u, 5u, 63u, 64u, 479u, 480u, 481u, 1000u, 65000u, 65536u, 300000u}) {
      const auto bytes = Pattern(size);
      Exchange(p, std::string(reinterpret_cast<const char*>(bytes.data()), size));
    }
  }
  SECTION("a Send without payload") {
    REQUIRE(p.a.qp->PostSend({.id = WorkId(9), .signaled = true, .solicited = true}) == PostResult::kOk);
    p.a.qp->Flush();
    const Completion got = NextCompletion(p.z, p.a);
    CHECK(got.length == 0);
    CHECK(got.piece_count == 0);
    CHECK(got.solicited);
    CHECK(NextCompletion(p.a, p.z).id == WorkId(9));
  }
  SECTION("header and gathered payload") {
    const std::string header = "sixteen bytes...";
    const Bytes parts[] = {AsBytes("one "), AsBytes(""), AsBytes("two "), AsBytes("three")};
    REQUIRE(p.a.qp->PostSend({.id = WorkId(2), .header = AsBytes(header), .payload = parts}) ==
            PostResult::kOk);
    p.a.qp->Flush();
    const Completion got = NextCompletion(p.z, p.a);
    CHECK(Text(got) == header + "one two three");
    CHECK_FALSE(got.solicited);
    p.z.qp->Release(got.token);
  }
  SECTION("RDMA Write, then a Send that tells of it") {
    auto target = std::vector<std::byte>(200000);
    const auto region = p.z.qp->Register(target, Access::kRemoteWrite);
    REQUIRE(region);
    const auto data = Pattern(150000);
    const Bytes parts[] = {Bytes(data).first(70001), Bytes(data).subspan(70001)};
    REQUIRE(p.a.qp->PostRdmaWrite({.id = WorkId(3),
                                   .signaled = true,
                                   .local = parts,
                                   .remote_stag = region->stag,
                                   .remote_to = region->base_to + 1000}) == PostResult::kOk);
    REQUIRE(p.a.Send("written") == PostResult::kOk);
    const Completion got = NextCompletion(p.z, p.a);
    CHECK(Text(got) == "written");
    p.z.qp->Release(got.token);
    CHECK(std::memcmp(target.data() + 1000, data.data(), data.size()) == 0);
    CHECK(target[999] == std::byte{0});
    CHECK(target[151000] == std::byte{0});
    const Completion done = NextCompletion(p.a, p.z);
    CHECK(done.opcode == Opcode::kRdmaWrite);
    CHECK(done.id == WorkId(3));
  }
  SECTION("RDMA Reads, more than ORD, in order, with local placement") {
    const auto source = Pattern(100000, 7);
    auto copy = source;
    const auto remote = p.z.qp->Register(copy, Access::kRemoteRead);
    auto sink = std::vector<std::byte>(source.size());
    const auto local = p.a.qp->Register(sink, Access::kLocal);
    p.a.qp->SetOrd(2);
    for (uint32_t i = 0; i < 10; ++i) {
      REQUIRE(p.a.qp->PostRdmaRead({.id = WorkId(100 + i),
                                    .local_stag = local->stag,
                                    .local_to = local->base_to + i * 10000,
                                    .length = 10000,
                                    .remote_stag = remote->stag,
                                    .remote_to = remote->base_to + i * 10000}) == PostResult::kOk);
    }
    REQUIRE(
        p.a.qp->PostRdmaRead({.id = WorkId(110), .local_stag = local->stag, .local_to = local->base_to}) ==
        PostResult::kOk);
    p.a.qp->Flush();
    for (uint32_t i = 0; i < 11; ++i) {
      const Completion done = NextCompletion(p.a, p.z);
      CHECK(done.opcode == Opcode::kRdmaRead);
      CHECK(done.status == Status::kSuccess);
      CHECK(done.id == WorkId(100 + i));
    }
    CHECK(sink == source);
  }
  SECTION("a region that moves while it is read and written") {
    constexpr size_t kSize = 20'000'000;  // more than the link takes at once
    const auto content = Pattern(kSize, 9);
    auto old_place = content;
    auto new_place = content;
    const auto region = p.z.qp->Register(old_place, Access::kRemoteRead);
    auto sink = std::vector<std::byte>(kSize);
    const auto local = p.a.qp->Register(sink, Access::kRemoteWrite);
    const auto read = [&](uint32_t id, uint32_t from, uint32_t length) {
      REQUIRE(p.a.qp->PostRdmaRead({.id = WorkId(id),
                                    .local_stag = local->stag,
                                    .local_to = local->base_to + from,
                                    .length = length,
                                    .remote_stag = region->stag,
                                    .remote_to = region->base_to + from}) == PostResult::kOk);
      p.a.qp->Flush();
    };
    read(120, 0, kSize / 2);
    REQUIRE(p.z.qp->ReadLink() == verbs::ReadStatus::kProgress);
    REQUIRE(p.z.qp->unsent_bytes() > 0);
    CHECK_FALSE(
        p.z.qp->movable_regions()->MoveRegion(region->stag, sdp::MutableBytes(new_place).first(kSize - 1)));
    REQUIRE(p.z.qp->movable_regions()->MoveRegion(region->stag, new_place));
    std::fill(old_place.begin(), old_place.end(), std::byte{'!'});  // the owner has it back
    CHECK(NextCompletion(p.a, p.z).id == WorkId(120));
    read(121, kSize / 2, kSize - kSize / 2);
    CHECK(NextCompletion(p.a, p.z).id == WorkId(121));
    CHECK(sink == content);

    // The same for what is written from a region.
    std::fill(sink.begin(), sink.end(), std::byte{0});
    old_place = content;
    const auto source = p.z.qp->Register(old_place, Access::kLocal);
    const Bytes whole(old_place);
    REQUIRE(p.z.qp->PostRdmaWrite({.id = WorkId(122),
                                   .signaled = true,
                                   .local = {&whole, 1},
                                   .local_stag = source->stag,
                                   .remote_stag = local->stag,
                                   .remote_to = local->base_to}) == PostResult::kOk);
    REQUIRE_FALSE(p.z.qp->Flush());
    const uint64_t copied = p.z.qp->counters().copied_out;
    p.z.qp->DetachBorrowed();
    // The region stays the RNIC's to read, but where a CRC has to be right it has been copied before.
    CHECK((p.z.qp->counters().copied_out == copied || copied >= kSize));
    REQUIRE(p.z.qp->movable_regions()->MoveRegion(source->stag, new_place));
    std::fill(old_place.begin(), old_place.end(), std::byte{'!'});
    CHECK(NextCompletion(p.z, p.a).id == WorkId(122));
    REQUIRE(p.z.Send("written") == PostResult::kOk);
    const Completion got = NextCompletion(p.a, p.z);
    p.a.qp->Release(got.token);
    CHECK(sink == content);
    CHECK_FALSE(p.z.qp->movable_regions()->MoveRegion(sdp::STag(1), new_place));
  }
  SECTION("Send with Invalidate") {
    std::vector<std::byte> memory(100);
    const auto region = p.a.qp->Register(memory, Access::kRemoteRead);
    REQUIRE(
        p.z.qp->PostSend(
            {.id = WorkId(4), .solicited = true, .invalidate = region->stag, .header = AsBytes("done")}) ==
        PostResult::kOk);
    p.z.qp->Flush();
    const Completion got = NextCompletion(p.a, p.z);
    CHECK(got.solicited);
    REQUIRE(got.invalidated);
    CHECK(*got.invalidated == region->stag);
    CHECK_FALSE(p.a.qp->IsRegistered(region->stag));
    p.a.qp->Release(got.token);
  }
  SECTION("many at once, both directions, with copies of what the link refuses") {
    std::string sent_a, sent_z, got_a, got_z;
    for (int round = 0; round < 60; ++round) {
      auto bytes = Pattern(static_cast<size_t>(1 + round * 977 % 30000), static_cast<uint32_t>(round));
      const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      REQUIRE(p.a.Send(text) == PostResult::kOk);
      REQUIRE(p.z.Send(text) == PostResult::kOk);
      sent_a += text;
      sent_z += text;
    }
    REQUIRE(RunUntil(p.a, p.z, [&] {
      Completion c;
      while (p.a.qp->PollCompletion(&c)) {
        got_a += Text(c);
        p.a.qp->Release(c.token);
      }
      while (p.z.qp->PollCompletion(&c)) {
        got_z += Text(c);
        p.z.qp->Release(c.token);
      }
      return got_z.size() >= sent_a.size() && got_a.size() >= sent_z.size();
    }));
    CHECK(got_z == sent_a);
    CHECK(got_a == sent_z);
    CHECK(p.a.qp->unsent_bytes() == 0);
  }
  p.a.qp->Disconnect();
  REQUIRE(RunUntil(p.a, p.z, [&] { return p.z.qp->cause().end != LinkEnd::kOpen; }));
  INFO(p.z.qp->cause().text);
  CHECK(p.z.qp->cause().end == LinkEnd::kClosedByPeer);
  CHECK(p.a.qp->cause().end == LinkEnd::kOpen);
}

}  // namespace
}  // namespace sdp::iwarp::test
