// The codec against bytes written out by hand from the draft's figures.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/wire/message.h"

namespace sdp::wire {
namespace {

std::vector<std::byte> Hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
    ++i;
  }
  return bytes;
}

struct Sample {
  std::string bytes;  // Bufs Flags MID, Len, MSeq, MSeqAck, extended header, payload
  Message message;
  std::string text;
};

Bsdh Base(Mid mid, uint32_t len, uint8_t flags = 0) {
  return {.bufs = 0x0102,
          .flags = flags,
          .mid = mid,
          .len = len,
          .mseq = MSeq(0x01020304),
          .mseq_ack = MSeq(0xa1a2a3a4)};
}

const std::string kSeq = " 01020304 a1a2a3a4";
const std::string kSeqText = " mseq=16909060 ack=2711790500";

const std::vector<Sample> kSamples = {
    {"0018 00 00 00000020 00000000 00000000  0010 00 11 00008010 00004000 0008 0007",
     {{.bufs = 24, .mid = Mid::kHello, .len = 32},
      Hello{.max_adverts = 16,
            .min_v = 1,
            .maj_v = 1,
            .des_rem_rcv_sz = 0x8010,
            .local_rcv_sz = 0x4000,
            .loc_ird = 8,
            .loc_ord = 7}},
     "Hello bufs=24 mseq=0 ack=0 max_adverts=16 maj_v=1 min_v=1 des_rem_rcv_sz=32784 local_rcv_sz=16384 "
     "ird=8 ord=7"},
    {"0003 00 01 0000001c 00000000 00000000  ffff 00 f1 80000000 0001 ffff",
     {{.bufs = 3, .mid = Mid::kHelloAck, .len = 28},
      HelloAck{.max_adverts = 0xffff,
               .min_v = 15,
               .maj_v = 1,
               .act_rcv_sz = 1u << 31,
               .loc_ird = 1,
               .loc_ord = 0xffff}},
     "HelloAck bufs=3 mseq=0 ack=0 max_adverts=65535 maj_v=1 min_v=15 act_rcv_sz=2147483648 ird=1 ord=65535"},
    {"0102 00 02 00000010" + kSeq, {Base(Mid::kDisConn, 16), DisConn{}}, "DisConn bufs=258" + kSeqText},
    {"0102 00 03 00000010" + kSeq, {Base(Mid::kAbortConn, 16), AbortConn{}}, "AbortConn bufs=258" + kSeqText},
    {"0102 00 04 00000010" + kSeq, {Base(Mid::kSendSm, 16), SendSm{}}, "SendSm bufs=258" + kSeqText},
    {"0102 04 05 00000014" + kSeq + " 12345678",
     {Base(Mid::kRdmaWrCompl, 20, kReqPipe), RdmaWrCompl{0x12345678}},
     "RdmaWrCompl bufs=258 REQ_PIPE" + kSeqText + " len=305419896"},
    {"0102 00 06 00000014" + kSeq + " 00000001",
     {Base(Mid::kRdmaRdCompl, 20), RdmaRdCompl{1}},
     "RdmaRdCompl bufs=258" + kSeqText + " len=1"},
    {"0102 00 07 00000014" + kSeq + " 00000003",
     {Base(Mid::kModeChange, 20), ModeChange{.mode = ModeChange::kCombined, .receivers_source = true}},
     "ModeChange bufs=258" + kSeqText + " mode=1 s=1"},
    {"0102 00 07 00000014" + kSeq + " 00000004",
     {Base(Mid::kModeChange, 20), ModeChange{.mode = ModeChange::kPipelined, .receivers_source = false}},
     "ModeChange bufs=258" + kSeqText + " mode=2 s=0"},
    {"0102 00 08 00000010" + kSeq,
     {Base(Mid::kSrcAvailCancel, 16), SrcAvailCancel{}},
     "SrcAvailCancel bufs=258" + kSeqText},
    {"0102 00 09 00000010" + kSeq,
     {Base(Mid::kSinkAvailCancel, 16), SinkAvailCancel{}},
     "SinkAvailCancel bufs=258" + kSeqText},
    {"0102 00 0a 00000010" + kSeq,
     {Base(Mid::kSinkCancelAck, 16), SinkCancelAck{}},
     "SinkCancelAck bufs=258" + kSeqText},
    {"0102 00 0b 00000014" + kSeq + " 00010010",
     {Base(Mid::kChRcvBuf, 20), ChRcvBuf{65552}},
     "ChRcvBuf bufs=258" + kSeqText + " des_sz=65552"},
    {"0102 00 0c 00000014" + kSeq + " 00010010",
     {Base(Mid::kChRcvBufAck, 20), ChRcvBufAck{65552}},
     "ChRcvBufAck bufs=258" + kSeqText + " act_sz=65552"},
    {"0102 00 0d 00000018" + kSeq + " 00000000 1234 0001",
     {Base(Mid::kSuspComm, 24), SuspComm{0x1234}},
     "SuspComm bufs=258" + kSeqText + " port=4660"},
    {"0102 00 0e 00000010" + kSeq,
     {Base(Mid::kSuspCommAck, 16), SuspCommAck{}},
     "SuspCommAck bufs=258" + kSeqText},
    {"0102 00 fd 00000027" + kSeq + " 00020000 deadbeef 1122334455667788 fffffffe  616263",
     {Base(Mid::kSinkAvail, 39),
      SinkAvail{
          .len = 0x20000, .stag = STag(0xdeadbeef), .va = 0x1122334455667788, .non_discards = 0xfffffffe}},
     "SinkAvail bufs=258" + kSeqText +
         " len=131072 stag=3735928559 va=1234605616436508552 non_discards=4294967294 payload=3"},
    {"0102 02 fe 00000021" + kSeq + " 80000000 cafef00d 0000000100000002  78",
     {Base(Mid::kSrcAvail, 33, kOobPend),
      SrcAvail{.len = 1u << 31, .stag = STag(0xcafef00d), .va = 0x100000002}},
     "SrcAvail bufs=258 OOB_PEND" + kSeqText + " len=2147483648 stag=3405705229 va=4294967298 payload=1"},
    {"0102 03 ff 00000014" + kSeq + " 64617461",
     {Base(Mid::kData, 20, kOobPend | kOobPres), Data{}},
     "Data bufs=258 OOB_PRES OOB_PEND" + kSeqText + " payload=4"},
    {"ffff 00 ff 00000010 ffffffff 00000000",
     {{.bufs = 0xffff, .mid = Mid::kData, .len = 16, .mseq = MSeq(0xffffffff)}, Data{}},
     "Data bufs=65535 mseq=4294967295 ack=0"},
};

Result<Message, WireError> ParseAll(const std::vector<std::byte>& bytes) {
  return Parse(bytes, bytes.size());
}

}  // namespace

TEST_CASE("Wire: each message reads as the figures say") {
  for (const Sample& sample : kSamples) {
    CAPTURE(sample.bytes);
    const auto message = ParseAll(Hex(sample.bytes));
    REQUIRE(message.has_value());
    CHECK(*message == sample.message);
    CHECK(ToString(*message) == sample.text);
    CHECK(message->payload_size() == Hex(sample.bytes).size() - message->header_size());
  }
}

TEST_CASE("Wire: each message is written byte for byte") {
  for (const Sample& sample : kSamples) {
    CAPTURE(sample.bytes);
    const auto expected = Hex(sample.bytes);
    std::vector<std::byte> out(kMaxHeaderSize, std::byte{0xee});
    const size_t size = SerializeTo(sample.message, out);
    REQUIRE(size == sample.message.header_size());
    CHECK(std::vector(out.begin(), out.begin() + static_cast<long>(size)) ==
          std::vector(expected.begin(), expected.begin() + static_cast<long>(size)));
  }
}

TEST_CASE("Wire: the samples have every MID") {
  std::set<Mid> seen;
  for (const Sample& sample : kSamples) seen.insert(sample.message.bsdh.mid);
  CHECK(seen.size() == 18);
}

TEST_CASE("Wire: every truncation is refused") {
  for (const Sample& sample : kSamples) {
    const auto bytes = Hex(sample.bytes);
    for (size_t size = 0; size < bytes.size(); ++size) {
      CAPTURE(sample.bytes, size);
      const auto message = Parse(Bytes(bytes).first(size), size);
      REQUIRE_FALSE(message.has_value());
      CHECK(message.error() ==
            (size < sample.message.header_size() ? WireError::kShort : WireError::kLength));
    }
  }
}

TEST_CASE("Wire: only the prefix is needed") {
  for (const Sample& sample : kSamples) {
    const auto bytes = Hex(sample.bytes);
    const auto message = Parse(Bytes(bytes).first(sample.message.header_size()), bytes.size());
    REQUIRE(message.has_value());
    CHECK(*message == sample.message);
  }
}

TEST_CASE("Wire: Len is the length, and payload only where it may be") {
  for (const Sample& sample : kSamples) {
    auto bytes = Hex(sample.bytes);
    bytes.push_back(std::byte{0});
    CAPTURE(sample.bytes);
    CHECK(ParseAll(bytes).error() == WireError::kLength);
    bytes[7] = static_cast<std::byte>(static_cast<uint8_t>(bytes[7]) + 1);
    const Mid mid = sample.message.bsdh.mid;
    const bool may_have_payload = mid == Mid::kData || mid == Mid::kSrcAvail || mid == Mid::kSinkAvail;
    const auto longer = ParseAll(bytes);
    CHECK(longer.has_value() == may_have_payload);
    if (!longer) CHECK(longer.error() == WireError::kLength);
  }
}

TEST_CASE("Wire: values without a name are typed errors") {
  std::set<uint8_t> known;
  for (const Sample& sample : kSamples) known.insert(static_cast<uint8_t>(sample.message.bsdh.mid));
  for (int mid = 0; mid < 256; ++mid) {
    if (known.count(static_cast<uint8_t>(mid))) continue;
    auto bytes = Hex("0000 00 ff 00000010 00000000 00000000");
    bytes[3] = static_cast<std::byte>(mid);
    CAPTURE(mid);
    CHECK(ParseAll(bytes).error() ==
          (mid >= 0x40 && mid <= 0x7f ? WireError::kExperimentalMid : WireError::kReservedMid));
  }
  for (int mode = 3; mode < 8; ++mode) {
    auto bytes = Hex("0102 00 07 00000014 00000000 00000000 00000000");
    bytes[19] = static_cast<std::byte>(mode << 1);
    CHECK(ParseAll(bytes).error() == WireError::kReservedMode);
  }
  CHECK(ParseAll(Hex("0102 00 0d 00000018 00000000 00000000 00000001 1234 0001")).error() ==
        WireError::kSuspCommConstant);
  CHECK(ParseAll(Hex("0102 00 0d 00000018 00000000 00000000 00000000 1234 0000")).error() ==
        WireError::kSuspCommConstant);
}

TEST_CASE("Wire: an advertised length is 1 to 2^31 and covers SrcAvail's payload") {
  const std::string tail = " 00000001 0000000000000000";
  CHECK(ParseAll(Hex("0000 00 fe 00000020 00000000 00000000 00000000" + tail)).error() ==
        WireError::kAdvertisedLength);
  CHECK(ParseAll(Hex("0000 00 fe 00000020 00000000 00000000 80000001" + tail)).error() ==
        WireError::kAdvertisedLength);
  CHECK(ParseAll(Hex("0000 00 fe 00000022 00000000 00000000 00000001" + tail + " 6161")).error() ==
        WireError::kAdvertisedLength);
  CHECK(ParseAll(Hex("0000 00 fe 00000022 00000000 00000000 00000002" + tail + " 6161")).has_value());
  CHECK(ParseAll(Hex("0000 00 fd 00000024 00000000 00000000 00000000" + tail + " 00000000")).error() ==
        WireError::kAdvertisedLength);
  CHECK(ParseAll(Hex("0000 00 fd 00000024 00000000 00000000 80000001" + tail + " 00000000")).error() ==
        WireError::kAdvertisedLength);
}

TEST_CASE("Wire: reserved bits are sent as zero and not looked at") {
  const auto hello =
      ParseAll(Hex("0018 00 00 00000020 00000000 00000000  0010 ff 11 00008010 00004000 0008 0007"));
  REQUIRE(hello.has_value());
  CHECK(*hello == kSamples[0].message);
  const auto mode = ParseAll(Hex("0102 00 07 00000014 01020304 a1a2a3a4 fffffff3"));
  REQUIRE(mode.has_value());
  CHECK(std::get<ModeChange>(mode->body) ==
        ModeChange{.mode = ModeChange::kCombined, .receivers_source = true});
  const auto data = ParseAll(Hex("0102 f8 ff 00000010 01020304 a1a2a3a4"));
  REQUIRE(data.has_value());
}

}  // namespace sdp::wire
