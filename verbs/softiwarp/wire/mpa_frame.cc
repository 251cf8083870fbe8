#include "verbs/softiwarp/wire/mpa_frame.h"

#include <algorithm>
#include <cstring>

#include "core/base/byte_order.h"
#include "core/base/check.h"

namespace sdp::iwarp {
namespace {

constexpr size_t kKeySize = 16;
constexpr uint8_t kMarkersBit = 0x80;
constexpr uint8_t kCrcBit = 0x40;
constexpr uint8_t kRejectBit = 0x20;
constexpr uint8_t kWordsBit = 0x10;
constexpr uint16_t kHighBit = 0x8000;
constexpr uint16_t kSecondBit = 0x4000;
constexpr uint8_t kEnhancedRevision = 2;

const char* KeyOf(MpaFrameKind kind) {
  return kind == MpaFrameKind::kRequest ? "MPA ID Req Frame" : "MPA ID Rep Frame";
}

MpaWords ParseWords(const std::byte* p) {
  const auto ird = LoadBe<uint16_t>(p);
  const auto ord = LoadBe<uint16_t>(p + 2);
  return {.ird = static_cast<uint16_t>(ird & kIrdOrdMask),
          .ord = static_cast<uint16_t>(ord & kIrdOrdMask),
          .peer_to_peer = (ird & kHighBit) != 0,
          .rtr_send = (ird & kSecondBit) != 0,
          .rtr_write = (ord & kHighBit) != 0,
          .rtr_read = (ord & kSecondBit) != 0};
}

void SerializeWords(const MpaWords& w, std::byte* p) {
  StoreBe<uint16_t>(p, static_cast<uint16_t>((w.ird & kIrdOrdMask) | (w.peer_to_peer ? kHighBit : 0) |
                                             (w.rtr_send ? kSecondBit : 0)));
  StoreBe<uint16_t>(p + 2, static_cast<uint16_t>((w.ord & kIrdOrdMask) | (w.rtr_write ? kHighBit : 0) |
                                                 (w.rtr_read ? kSecondBit : 0)));
}

}  // namespace

Result<ParsedMpaFrame, MpaFrameError> ParseMpaFrame(Bytes bytes, MpaFrameKind expected) {
  if (!bytes.empty() && std::memcmp(bytes.data(), KeyOf(expected), std::min(bytes.size(), kKeySize)) != 0) {
    return unexpected(MpaFrameError::kBadKey);
  }
  if (bytes.size() < kMpaHeaderSize) return unexpected(MpaFrameError::kIncomplete);
  const auto flags = static_cast<uint8_t>(bytes[16]);
  const auto revision = static_cast<uint8_t>(bytes[17]);
  const auto pd_length = LoadBe<uint16_t>(bytes.data() + 18);
  if (pd_length > kMaxPrivateData) return unexpected(MpaFrameError::kBadLength);
  const bool has_words = (flags & kWordsBit) != 0 && revision >= kEnhancedRevision;
  if (has_words && pd_length < kMpaWordsSize) return unexpected(MpaFrameError::kWordsMissing);
  if (bytes.size() < kMpaHeaderSize + pd_length) return unexpected(MpaFrameError::kIncomplete);

  ParsedMpaFrame parsed;
  parsed.size = kMpaHeaderSize + pd_length;
  MpaFrame& f = parsed.frame;
  f.kind = expected;
  f.markers = (flags & kMarkersBit) != 0;
  f.crc = (flags & kCrcBit) != 0;
  f.reject = (flags & kRejectBit) != 0;
  f.revision = revision;
  f.private_data = bytes.subspan(kMpaHeaderSize, pd_length);
  if (has_words) {
    f.words = ParseWords(f.private_data.data());
    f.private_data = f.private_data.subspan(kMpaWordsSize);
  }
  return parsed;
}

size_t SerializeMpaFrame(const MpaFrame& frame, MutableBytes out) {
  const size_t words_size = frame.words ? kMpaWordsSize : 0;
  const size_t pd_length = words_size + frame.private_data.size();
  SDP_CHECK(pd_length <= kMaxPrivateData && out.size() >= kMpaHeaderSize + pd_length);
  std::memcpy(out.data(), KeyOf(frame.kind), kKeySize);
  out[16] = static_cast<std::byte>((frame.markers ? kMarkersBit : 0) | (frame.crc ? kCrcBit : 0) |
                                   (frame.reject ? kRejectBit : 0) | (frame.words ? kWordsBit : 0));
  out[17] = static_cast<std::byte>(frame.revision);
  StoreBe<uint16_t>(out.data() + 18, static_cast<uint16_t>(pd_length));
  if (frame.words) SerializeWords(*frame.words, out.data() + kMpaHeaderSize);
  if (!frame.private_data.empty()) {
    std::memcpy(out.data() + kMpaHeaderSize + words_size, frame.private_data.data(),
                frame.private_data.size());
  }
  return kMpaHeaderSize + pd_length;
}

}  // namespace sdp::iwarp
