// A peer that breaks the rules, one at a time: the Terminate it gets, byte for byte, what the owner hears,
// and that no memory but what was advertised is touched.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "test/verbs/raw_peer.h"
#include "verbs/softiwarp/wire/opcode_table.h"
#include "verbs/softiwarp/wire/read_request.h"
#include "verbs/softiwarp/wire/terminate.h"

namespace sdp::iwarp::test {
namespace {

using verbs::Access;
using verbs::Completion;
using verbs::LinkEnd;

constexpr uint8_t kSend = 3;

// The QueuePair under attack: a fenced region for each access, and what it can receive.
struct Target {
  explicit Target(const SoftOptions& options = {}, std::string_view request = "00 01 0000")
      : peer(MakeRawPeer({.receive_buffer_size = 100, .initial_receives = 2, .ird = 1}, options, request)) {
    writable = *peer.qp->Register(MutableBytes(memory).subspan(1000, 100), Access::kRemoteWrite);
    readable = *peer.qp->Register(MutableBytes(memory).subspan(2000, 100), Access::kRemoteRead);
    local = *peer.qp->Register(MutableBytes(memory).subspan(3000, 100), Access::kLocal);
  }
  std::vector<std::byte> memory = std::vector<std::byte>(4096, std::byte{0x5a});
  RawPeer peer;
  verbs::MemoryRegion writable, readable, local;

  void ExpectTerminate(const TerminateMessage& message) {
    TerminateBytes bytes;
    const size_t size = SerializeTerminate(message, bytes);
    const auto expected = Fpdu({.last = true, .opcode = 7, .queue = 2, .msn = 1}, Bytes(bytes).first(size));
    const auto got = peer.Receive();
    INFO(peer.qp->cause().text);
    CHECK(got == expected);
    const verbs::LinkCause& cause = peer.qp->cause();
    CHECK(cause.end == LinkEnd::kTerminated);
    CHECK(cause.local);
    CHECK(TerminateCause{cause.layer, cause.etype, cause.ecode} == message.cause);
    CHECK(cause.text.find(CauseName(message.cause)) != std::string::npos);
    CHECK(peer.qp->ReadLink() == verbs::ReadStatus::kEnded);
    CHECK(peer.qp->PostSend({.id = WorkId(1)}) == verbs::PostResult::kBroken);
    CHECK_FALSE(peer.qp->interest().read);
    CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
  }
  // Sends one segment that has to be refused with the header that was sent.
  void Refuses(const TerminateCause& cause, const DdpHeader& header, Bytes payload = {},
               std::optional<ReadRequest> request = std::nullopt) {
    peer.Send(Fpdu(header, payload));
    ExpectTerminate({.cause = cause,
                     .segment_length_valid = true,
                     .segment_length = static_cast<uint16_t>(header.size() + payload.size()),
                     .ddp_header = header,
                     .read_request = request});
  }
};

std::array<std::byte, kReadRequestSize> Serialized(const ReadRequest& r) {
  std::array<std::byte, kReadRequestSize> bytes;
  SerializeReadRequest(r, bytes);
  return bytes;
}

const std::vector<std::byte> kTen(10, std::byte{1});

TEST_CASE("DDP untagged errors") {
  Target t;
  const DdpHeader good{.last = true, .opcode = kSend, .msn = 1};
  SECTION("version") {
    auto h = good;
    h.ddp_version = GENERATE(0, 2, 3);
    t.Refuses(cause::kUntaggedVersion, h, kTen);
  }
  SECTION("queue number") {
    auto h = good;
    h.queue = GENERATE(3u, 0xffffffffu);
    t.Refuses(cause::kInvalidQueue, h, kTen);
  }
  SECTION("MSN ahead and behind") {
    auto h = good;
    h.msn = GENERATE(0u, 2u, 0xffffffffu);
    t.Refuses(cause::kMsnRange, h, kTen);
  }
  SECTION("MSN repeated") {
    t.peer.Send(Fpdu(good, kTen));
    t.peer.Run();
    t.Refuses(cause::kMsnRange, good, kTen);
    Completion c;
    REQUIRE(t.peer.qp->PollCompletion(&c));
    CHECK(c.length == 10);
    t.peer.qp->Release(c.token);
  }
  SECTION("no buffer") {
    auto h = good;
    for (h.msn = 1; h.msn <= 2; ++h.msn) t.peer.Send(Fpdu(h));
    t.Refuses(cause::kNoBuffer, h, kTen);
  }
  SECTION("MO without the bytes before it") {
    auto h = good;
    h.mo = 5;
    t.Refuses(cause::kInvalidMo, h, kTen);
  }
  SECTION("MO repeated within a message") {
    auto h = good;
    h.last = false;
    t.peer.Send(Fpdu(h, kTen));
    t.Refuses(cause::kInvalidMo, h, kTen);
  }
  SECTION("too long at once") {
    const std::vector<std::byte> payload(101);
    t.Refuses(cause::kTooLong, good, payload);
  }
  SECTION("too long in the end") {
    auto h = good;
    h.last = false;
    const std::vector<std::byte> payload(60);
    t.peer.Send(Fpdu(h, payload));
    h.mo = 60;
    t.Refuses(cause::kTooLong, h, payload);
  }
}

TEST_CASE("DDP tagged errors") {
  Target t;
  DdpHeader h{.tagged = true, .last = true, .opcode = 0, .stag = t.writable.stag, .to = t.writable.base_to};
  SECTION("version") {
    h.ddp_version = 2;
    t.Refuses(cause::kTaggedVersion, h, kTen);
  }
  SECTION("unknown STag") {
    h.stag = STag(t.writable.stag.value() ^ GENERATE(1u, 0x1000u, 0x80000000u, 0xfffu));
    t.Refuses(cause::kTaggedInvalidSTag, h, kTen);
  }
  SECTION("deregistered STag") {
    t.peer.qp->Deregister(h.stag);
    t.Refuses(cause::kTaggedInvalidSTag, h, kTen);
  }
  SECTION("an STag of another connection") {
    const Target other;
    h.stag = other.writable.stag;
    t.Refuses(cause::kTaggedInvalidSTag, h, kTen);
  }
  SECTION("a region without remote write") {
    const auto& region = GENERATE(0, 1) == 0 ? t.readable : t.local;
    h.stag = region.stag;
    h.to = region.base_to;
    t.Refuses(cause::kTaggedInvalidSTag, h, kTen);
  }
  SECTION("below the region") {
    h.to = t.writable.base_to - 1;
    t.Refuses(cause::kTaggedBounds, h, kTen);
  }
  SECTION("beyond the region") {
    h.to = t.writable.base_to + 91;
    t.Refuses(cause::kTaggedBounds, h, kTen);
  }
  SECTION("far beyond the region") {
    h.to = t.writable.base_to + 101;
    t.Refuses(cause::kTaggedBounds, h, kTen);
  }
  SECTION("TO wraps") {
    h.to = ~uint64_t{0} - 3;
    t.Refuses(cause::kTaggedToWrap, h, kTen);
  }
}

TEST_CASE("RDMAP errors") {
  Target t;
  SECTION("version") {
    t.Refuses(cause::kRdmapVersion,
              {.last = true, .rdmap_version = GENERATE(uint8_t{2}, uint8_t{3}), .opcode = kSend, .msn = 1},
              kTen);
  }
  SECTION("reserved opcodes") {
    t.Refuses(cause::kUnexpectedOpcode, {.last = true, .opcode = GENERATE(uint8_t{8}, uint8_t{15}), .msn = 1},
              kTen);
  }
  SECTION("Send in a tagged segment") {
    t.Refuses(cause::kUnexpectedOpcode, {.tagged = true, .last = true, .opcode = kSend}, kTen);
  }
  SECTION("Write in an untagged segment") {
    t.Refuses(cause::kUnexpectedOpcode, {.last = true, .opcode = 0, .msn = 1}, kTen);
  }
  SECTION("Send on another queue") {
    t.Refuses(cause::kUnexpectedOpcode, {.last = true, .opcode = kSend, .queue = GENERATE(1u, 2u), .msn = 1},
              kTen);
  }
  SECTION("Read Response without a request") {
    t.Refuses(cause::kUnexpectedOpcode,
              {.tagged = true, .last = true, .opcode = 2, .stag = t.local.stag, .to = t.local.base_to}, kTen);
  }
  SECTION("Invalidate of an STag that is none, or not the peer's business") {
    const STag stag = GENERATE(0, 1) == 0 ? STag(12345) : t.local.stag;
    t.Refuses(cause::kCannotInvalidate,
              {.last = true, .opcode = GENERATE(uint8_t{4}, uint8_t{6}), .stag = stag, .msn = 1}, kTen);
    CHECK(t.peer.qp->IsRegistered(t.local.stag));
  }
}

TEST_CASE("RDMA Read Requests that are refused") {
  Target t;
  const DdpHeader h{.last = true, .opcode = 1, .queue = 1, .msn = 1};
  ReadRequest r{.sink_stag = STag(9),
                .sink_to = 8,
                .size = 10,
                .source_stag = t.readable.stag,
                .source_to = t.readable.base_to};
  SECTION("unknown STag") {
    r.source_stag = STag(1);
    t.Refuses(cause::kReadInvalidSTag, h, Serialized(r), r);
  }
  SECTION("a region without remote read") {
    const auto& region = GENERATE(0, 1) == 0 ? t.writable : t.local;
    r.source_stag = region.stag;
    r.source_to = region.base_to;
    t.Refuses(cause::kReadAccess, h, Serialized(r), r);
  }
  SECTION("outside the region") {
    r.source_to = t.readable.base_to + GENERATE(uint64_t{91}, uint64_t{101}, ~uint64_t{0});
    t.Refuses(cause::kReadBounds, h, Serialized(r), r);
  }
  SECTION("TO wraps") {
    r.source_to = ~uint64_t{0} - 3;
    t.Refuses(cause::kReadToWrap, h, Serialized(r), r);
  }
  SECTION("too large by far") {
    r.size = 0xffffffff;
    t.Refuses(cause::kReadBounds, h, Serialized(r), r);
  }
  SECTION("shorter than its header") { t.Refuses(cause::kUnspecified, h, Bytes(Serialized(r)).first(27)); }
  SECTION("longer than its header") {
    const std::vector<std::byte> longer(29);
    t.Refuses(cause::kTooLong, h, longer);
  }
  SECTION("in a second segment") {
    auto second = h;
    second.mo = 28;
    t.Refuses(cause::kInvalidMo, second, Serialized(r));
  }
  SECTION("more than IRD while the answers cannot leave") {
    // The link is filled up first, so that no response leaves.
    const std::vector<std::byte> filler(1 << 20);
    const Bytes payload(filler);
    t.peer.Send(Fpdu({.last = true, .opcode = kSend, .msn = 1}));  // opens the responder's direction
    t.peer.Run();
    for (int i = 0; i < 64; ++i) t.peer.qp->PostSend({.id = WorkId(1), .payload = std::span(&payload, 1)});
    REQUIRE_FALSE(t.peer.qp->Flush());
    auto second = h;
    t.peer.Send(Fpdu(second, Serialized(r)));
    second.msn = 2;
    t.peer.Send(Fpdu(second, Serialized(r)));
    t.peer.Run();
    CHECK(t.peer.qp->cause().ecode == cause::kNoBuffer.ecode);
    CHECK(t.peer.qp->cause().layer == 1);
    CHECK(t.peer.qp->cause().end == LinkEnd::kTerminated);
  }
}

TEST_CASE("RDMA Read Responses that are refused") {
  Target t;
  t.peer.Send(Fpdu({.last = true, .opcode = kSend, .msn = 1}));
  t.peer.Run();
  REQUIRE(t.peer.qp->PostRdmaRead({.id = WorkId(5),
                                   .local_stag = t.local.stag,
                                   .local_to = t.local.base_to,
                                   .length = 10,
                                   .remote_stag = STag(1),
                                   .remote_to = 2}) == verbs::PostResult::kOk);
  t.peer.qp->Flush();
  CHECK(t.peer.Receive() ==
        Fpdu({.last = true, .opcode = 1, .queue = 1, .msn = 1}, Serialized({.sink_stag = t.local.stag,
                                                                            .sink_to = t.local.base_to,
                                                                            .size = 10,
                                                                            .source_stag = STag(1),
                                                                            .source_to = 2})));
  DdpHeader h{.tagged = true, .last = true, .opcode = 2, .stag = t.local.stag, .to = t.local.base_to};
  SECTION("another STag") {
    h.stag = t.writable.stag;
    t.Refuses(cause::kTaggedInvalidSTag, h, kTen);
  }
  SECTION("another place") {
    h.to += GENERATE(uint64_t{1}, ~uint64_t{0});
    t.Refuses(cause::kTaggedBounds, h, kTen);
  }
  SECTION("too much") {
    const std::vector<std::byte> eleven(11);
    t.Refuses(cause::kTaggedBounds, h, eleven);
  }
  SECTION("too little") { t.Refuses(cause::kUnspecified, h, Bytes(kTen).first(9)); }
  SECTION("after the sink was deregistered") {
    t.peer.qp->Deregister(t.local.stag);
    t.Refuses(cause::kTaggedInvalidSTag, h, kTen);
  }
  Completion c;
  REQUIRE(t.peer.qp->PollCompletion(&c));
  t.peer.qp->Release(c.token);
  REQUIRE(t.peer.qp->PollCompletion(&c));
  CHECK(c.id == WorkId(5));
  CHECK(c.status == verbs::Status::kFlushed);
}

TEST_CASE("zero-length tagged segments are not checked") {
  Target t;
  t.peer.Send(Fpdu({.tagged = true, .last = true, .opcode = 0, .stag = STag(1), .to = ~uint64_t{0}}));
  const ReadRequest nothing{
      .sink_stag = STag(7), .sink_to = 9, .size = 0, .source_stag = STag(8), .source_to = 1};
  t.peer.Send(Fpdu({.last = true, .opcode = 1, .queue = 1, .msn = 1}, Serialized(nothing)));
  CHECK(t.peer.Receive() == Fpdu({.tagged = true, .last = true, .opcode = 2, .stag = STag(7), .to = 9}));
  CHECK(t.peer.qp->cause().end == LinkEnd::kOpen);
}

TEST_CASE("MPA errors") {
  SECTION("an ULPDU without room for its header") {
    Target t;
    t.peer.Send(Hex("000d c1 40 00000000 0000000000000000"));
    t.ExpectTerminate({.cause = cause::kFpduStart});
  }
  SECTION("a wrong CRC, whatever else is wrong") {
    Target t({}, "40 01 0000");
    const DdpHeader h = GENERATE(DdpHeader{.last = true, .opcode = kSend, .msn = 1},
                                 DdpHeader{.last = true, .opcode = 9, .queue = 7},
                                 DdpHeader{.tagged = true, .last = true, .ddp_version = 3});
    t.peer.Send(Fpdu(h, kTen));
    TerminateBytes bytes;
    const size_t size = SerializeTerminate({.cause = cause::kBadCrc}, bytes);
    CHECK(t.peer.Receive() ==
          Fpdu({.last = true, .opcode = 7, .queue = 2, .msn = 1}, Bytes(bytes).first(size), true));
    CHECK(t.peer.qp->cause().text == "MPA error, CRC mismatch: FPDU 1 (the peer's error); Terminate sent");
  }
  SECTION("tagged payload with a wrong CRC is not placed") {
    Target t({}, "40 01 0000");
    auto fpdu =
        Fpdu({.tagged = true, .last = true, .opcode = 0, .stag = t.writable.stag, .to = t.writable.base_to},
             kTen, true);
    fpdu.back() ^= std::byte{1};
    t.peer.Send(fpdu);
    t.peer.Run();
    CHECK(t.peer.qp->cause().ecode == cause::kBadCrc.ecode);
    CHECK(t.memory[1000] == std::byte{0x5a});
  }
  SECTION("a marker that points elsewhere") {
    Target t({.want_markers = true});
    auto stream = Hex("00000004");
    Append(&stream, Fpdu({.last = true, .opcode = kSend, .msn = 1}, kTen));
    t.peer.Send(stream);
    t.ExpectTerminate({.cause = cause::kFpduStart});
  }
}

TEST_CASE("what RDMAC peers put in the RDMAP version is accepted") {
  Target t;
  t.peer.Send(Fpdu({.last = true, .rdmap_version = 0, .opcode = kSend, .msn = 1}, kTen));
  t.peer.Run();
  Completion c;
  REQUIRE(t.peer.qp->PollCompletion(&c));
  CHECK(c.length == 10);
  t.peer.qp->Release(c.token);
}

TEST_CASE("the peer's Terminate") {
  Target t;
  t.peer.Send(Fpdu({.last = true, .opcode = kSend, .msn = 1}));
  t.peer.Run();
  for (const uint64_t id : {1u, 2u}) {
    t.peer.qp->PostRdmaRead(
        {.id = WorkId(id), .local_stag = t.local.stag, .local_to = t.local.base_to, .length = 10});
  }
  t.peer.qp->Flush();
  TerminateBytes bytes;
  const TerminateMessage message{.cause = cause::kReadBounds,
                                 .segment_length_valid = true,
                                 .segment_length = 46,
                                 .ddp_header = DdpHeader{.last = true, .opcode = 1, .queue = 1, .msn = 1},
                                 .read_request = ReadRequest{}};
  const size_t size = SerializeTerminate(message, bytes);
  t.peer.Send(Fpdu({.last = true, .opcode = 7, .queue = 2, .msn = 1},
                   Bytes(bytes).first(size - GENERATE(size_t{0}, size_t{1}))));
  CHECK(t.peer.qp->ReadLink() == verbs::ReadStatus::kEnded);
  CHECK(t.peer.qp->cause().end == LinkEnd::kTerminated);
  CHECK_FALSE(t.peer.qp->cause().local);
  Completion c;
  REQUIRE(t.peer.qp->PollCompletion(&c));
  t.peer.qp->Release(c.token);
  REQUIRE(t.peer.qp->PollCompletion(&c));
  CHECK(c.id == WorkId(1));
  const bool named = t.peer.qp->cause().text == "the peer sent Terminate: RDMAP, base or bounds violation";
  CHECK((named || t.peer.qp->cause().text == "the peer sent a malformed Terminate"));
  CHECK(c.status == (named ? verbs::Status::kRemoteError : verbs::Status::kFlushed));
  REQUIRE(t.peer.qp->PollCompletion(&c));
  CHECK(c.id == WorkId(2));
  CHECK(c.status == verbs::Status::kFlushed);
}

}  // namespace
}  // namespace sdp::iwarp::test
