// The formats, byte for byte against bytes written out from the figures.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/verbs/bytes.h"
#include "verbs/softiwarp/proto/crc32c.h"
#include "verbs/softiwarp/wire/ddp_header.h"
#include "verbs/softiwarp/wire/mpa_frame.h"
#include "verbs/softiwarp/wire/opcode_table.h"
#include "verbs/softiwarp/wire/read_request.h"
#include "verbs/softiwarp/wire/terminate.h"

namespace sdp::iwarp::test {
namespace {

TEST_CASE("DDP tagged header") {
  const auto bytes = Hex("c1 40 01 02 03 04 11 12 13 14 15 16 17 18");
  const DdpHeader h = ParseDdpHeader(bytes.data());
  CHECK(h ==
        DdpHeader{
            .tagged = true, .last = true, .opcode = 0, .stag = STag(0x01020304), .to = 0x1112131415161718});
  std::vector<std::byte> out(kTaggedHeaderSize);
  CHECK(SerializeDdpHeader(h, out.data()) == kTaggedHeaderSize);
  CHECK(out == bytes);
}

TEST_CASE("DDP untagged header") {
  const auto bytes = Hex("41 46 0a 0b 0c 0d 00 00 00 00 00 00 00 07 00 00 00 20");
  const DdpHeader h = ParseDdpHeader(bytes.data());
  CHECK(h == DdpHeader{.last = true, .opcode = 6, .stag = STag(0x0a0b0c0d), .queue = 0, .msn = 7, .mo = 32});
  std::vector<std::byte> out(kUntaggedHeaderSize);
  CHECK(SerializeDdpHeader(h, out.data()) == kUntaggedHeaderSize);
  CHECK(out == bytes);
}

TEST_CASE("reserved bits of a DDP header are ignored, versions are not") {
  const auto bytes = Hex("be b3 00 00 00 00 00 00 00 00 00 00 00 00");
  const DdpHeader h = ParseDdpHeader(bytes.data());
  CHECK(h.tagged);
  CHECK_FALSE(h.last);
  CHECK(h.ddp_version == 2);
  CHECK(h.rdmap_version == 2);
  CHECK(h.opcode == 3);
}

TEST_CASE("opcode table") {
  for (uint8_t i = 0; i < 8; ++i) {
    REQUIRE(FindOpcode(i) != nullptr);
    CHECK(static_cast<uint8_t>(FindOpcode(i)->opcode) == i);
  }
  for (uint8_t i = 8; i < 16; ++i) CHECK(FindOpcode(i) == nullptr);
  CHECK(SendOpcode(false, false) == RdmapOpcode::kSend);
  CHECK(SendOpcode(false, true) == RdmapOpcode::kSendInvalidate);
  CHECK(SendOpcode(true, false) == RdmapOpcode::kSendSe);
  CHECK(SendOpcode(true, true) == RdmapOpcode::kSendSeInvalidate);
}

TEST_CASE("RDMA Read Request") {
  const auto bytes = Hex("00000001 0000000000000002 00000003 00000004 0000000000000005");
  REQUIRE(bytes.size() == kReadRequestSize);
  const std::span<const std::byte, kReadRequestSize> fixed(bytes.data(), kReadRequestSize);
  const ReadRequest r = ParseReadRequest(fixed);
  CHECK(r ==
        ReadRequest{.sink_stag = STag(1), .sink_to = 2, .size = 3, .source_stag = STag(4), .source_to = 5});
  std::array<std::byte, kReadRequestSize> out;
  SerializeReadRequest(r, out);
  CHECK(std::equal(out.begin(), out.end(), bytes.begin()));
}

TEST_CASE("Terminate") {
  TerminateMessage m;
  TerminateBytes out;
  SECTION("from MPA: no headers") {
    m.cause = cause::kBadCrc;
    CHECK(Hex("20 02 00 00") == Copy(Bytes(out).first(SerializeTerminate(m, out))));
  }
  SECTION("with an untagged header") {
    m.cause = cause::kMsnRange;
    m.segment_length_valid = true;
    m.segment_length = 20;
    m.ddp_header = DdpHeader{.last = true, .opcode = 3, .msn = 9};
    const auto expected = Hex("12 03 c0 00 00 14 41 43 00000000 00000000 00000009 00000000");
    CHECK(expected == Copy(Bytes(out).first(SerializeTerminate(m, out))));
  }
  SECTION("with a Read Request") {
    m.cause = cause::kReadAccess;
    m.segment_length_valid = true;
    m.segment_length = 46;
    m.ddp_header = DdpHeader{.last = true, .opcode = 1, .queue = 1, .msn = 1};
    m.read_request =
        ReadRequest{.sink_stag = STag(1), .sink_to = 2, .size = 3, .source_stag = STag(4), .source_to = 5};
    const auto expected =
        Hex("01 02 e0 00 00 2e 41 41 00000000 00000001 00000001 00000000"
            "00000001 0000000000000002 00000003 00000004 0000000000000005");
    CHECK(expected == Copy(Bytes(out).first(SerializeTerminate(m, out))));
  }
  const size_t size = SerializeTerminate(m, out);
  const auto parsed = ParseTerminate(Bytes(out).first(size));
  REQUIRE(parsed);
  CHECK(parsed->cause == m.cause);
  CHECK(parsed->ddp_header == m.ddp_header);
  CHECK(parsed->read_request == m.read_request);
  for (size_t n = 0; n < size; ++n) CHECK_FALSE(ParseTerminate(Bytes(out).first(n)));
}

TEST_CASE("every cause has a name") {
  for (const auto& c : {cause::kLocalCatastrophic, cause::kReadInvalidSTag,  cause::kReadBounds,
                        cause::kReadAccess,        cause::kReadToWrap,       cause::kCannotInvalidate,
                        cause::kRdmapVersion,      cause::kUnexpectedOpcode, cause::kUnspecified,
                        cause::kTaggedInvalidSTag, cause::kTaggedBounds,     cause::kTaggedToWrap,
                        cause::kTaggedVersion,     cause::kInvalidQueue,     cause::kNoBuffer,
                        cause::kMsnRange,          cause::kInvalidMo,        cause::kTooLong,
                        cause::kUntaggedVersion,   cause::kBadCrc,           cause::kFpduStart,
                        cause::kInsufficientIrd,   cause::kNoMatchingRtr}) {
    CHECK(std::string(CauseName(c)) != "unknown error");
    CHECK(std::string(LayerName(c.layer)) != "unknown layer");
  }
  CHECK(std::string(CauseName({9, 9, 9})) == "unknown error");
}

TEST_CASE("MPA Request, revision 1") {
  const auto bytes = Hex("4d504120494420526571204672616d65 c0 01 0003 616263");
  const auto parsed = ParseMpaFrame(bytes, MpaFrameKind::kRequest);
  REQUIRE(parsed);
  CHECK(parsed->size == 23);
  const MpaFrame& f = parsed->frame;
  CHECK(f.markers);
  CHECK(f.crc);
  CHECK_FALSE(f.reject);
  CHECK(f.revision == 1);
  CHECK_FALSE(f.words);
  CHECK(Copy(f.private_data) == Hex("616263"));
  std::vector<std::byte> out(kMaxMpaFrame);
  out.resize(SerializeMpaFrame(f, out));
  CHECK(out == bytes);
}

TEST_CASE("MPA Reply, revision 2, peer-to-peer, rejected") {
  const auto bytes = Hex("4d504120494420526570204672616d65 30 02 0006 8010 c020 7879");
  const auto parsed = ParseMpaFrame(bytes, MpaFrameKind::kReply);
  REQUIRE(parsed);
  const MpaFrame& f = parsed->frame;
  CHECK(f.reject);
  REQUIRE(f.words);
  CHECK(*f.words ==
        MpaWords{.ird = 16, .ord = 32, .peer_to_peer = true, .rtr_write = true, .rtr_read = true});
  CHECK(Copy(f.private_data) == Hex("7879"));
  std::vector<std::byte> out(kMaxMpaFrame);
  out.resize(SerializeMpaFrame(f, out));
  CHECK(out == bytes);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto cut = ParseMpaFrame(Bytes(bytes).first(n), MpaFrameKind::kReply);
    REQUIRE_FALSE(cut);
    CHECK(cut.error() == MpaFrameError::kIncomplete);
  }
}

TEST_CASE("MPA frames that are none") {
  const auto error = [](std::string_view hex, MpaFrameKind kind = MpaFrameKind::kRequest) {
    const auto bytes = Hex(hex);
    const auto parsed = ParseMpaFrame(bytes, kind);
    REQUIRE_FALSE(parsed);
    return parsed.error();
  };
  CHECK(error("474554") == MpaFrameError::kBadKey);  // "GET", at once
  CHECK(error("4d504120494420526571204672616d65", MpaFrameKind::kReply) == MpaFrameError::kBadKey);
  CHECK(error("4d504120494420526571204672616d65 00 01 0201") == MpaFrameError::kBadLength);
  CHECK(error("4d504120494420526571204672616d65 10 02 0003 000000") == MpaFrameError::kWordsMissing);
  CHECK(error("") == MpaFrameError::kIncomplete);
}

TEST_CASE("CRC32c") {
  // RFC 3720, B.4
  const auto crc = [](const std::vector<std::byte>& bytes) {
    std::vector<std::byte> out(kCrcSize);
    const uint32_t running = ExtendCrc32c(kCrcStart, bytes);
    CHECK(running == ExtendCrc32cByTable(kCrcStart, bytes));
    StoreCrc32c(running, out.data());
    CHECK(MatchesCrc32c(running, out.data()));
    return out;
  };
  CHECK(crc(std::vector<std::byte>(32)) == Hex("aa36918a"));
  CHECK(crc(std::vector<std::byte>(32, std::byte{0xff})) == Hex("43aba862"));
  std::vector<std::byte> rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<std::byte>(i));
  CHECK(crc(rising) == Hex("4e79dd46"));
  // Both forms agree on every length and alignment.
  for (size_t n = 0; n < 40; ++n)
    crc(std::vector<std::byte>(rising.begin(), rising.begin() + static_cast<long>(n % 32)));
}

}  // namespace
}  // namespace sdp::iwarp::test
