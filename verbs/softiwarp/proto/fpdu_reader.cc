#include "verbs/softiwarp/proto/fpdu_reader.h"

#include <algorithm>
#include <cstring>

#include "core/base/byte_order.h"
#include "core/base/check.h"

namespace sdp::iwarp {

FpduReader::Step FpduReader::Next(Bytes* input, Bytes* payload) {
  switch (phase_) {
    case Phase::kHead:
      return ReadHead(input);
    case Phase::kPayload:
      if (payload_left_ > 0) {
        if (input->empty()) return Step::kNeedMore;
        const auto n = static_cast<uint32_t>(std::min<size_t>(input->size(), payload_left_));
        *payload = input->first(n);
        *input = input->subspan(n);
        Cover(payload->data(), n);
        payload_left_ -= n;
        return Step::kPayload;
      }
      phase_ = Phase::kTrailer;
      have_ = 0;
      [[fallthrough]];
    case Phase::kTrailer:
      return ReadTrailer(input);
  }
  return Step::kNeedMore;
}

void FpduReader::HandlePlaced(uint32_t n) {
  SDP_DCHECK(!check_crc_ && n <= payload_left());
  Cover(nullptr, n);
  payload_left_ -= n;
}

bool FpduReader::Gather(std::byte* to, size_t wanted, Bytes* input) {
  if (have_ >= wanted) return true;
  const size_t n = std::min(wanted - have_, input->size());
  std::memcpy(to + have_, input->data(), n);
  *input = input->subspan(n);
  have_ = static_cast<uint8_t>(have_ + n);
  return have_ == wanted;
}

FpduReader::Step FpduReader::ReadHead(Bytes* input) {
  // The first octet of the DDP header determines its size.
  if (input->empty()) return Step::kNeedMore;
  if (!Gather(head_.data(), kMpaLengthSize + 1, input)) return Step::kNeedMore;
  const size_t header_size = DdpHeaderSize(head_[kMpaLengthSize]);
  ulpdu_length_ = LoadBe<uint16_t>(head_.data());
  if (ulpdu_length_ < header_size) return Step::kTooShort;
  if (!Gather(head_.data(), kMpaLengthSize + header_size, input)) return Step::kNeedMore;

  crc_ = kCrcStart;
  raw_offset_ = 0;
  marker_wrong_ = false;
  Cover(head_.data(), static_cast<uint32_t>(kMpaLengthSize + header_size));
  payload_length_ = payload_left_ = static_cast<uint32_t>(ulpdu_length_ - header_size);
  phase_ = Phase::kPayload;
  return Step::kHeader;
}

FpduReader::Step FpduReader::ReadTrailer(Bytes* input) {
  const uint32_t pad = PadSize(ulpdu_length_);
  if (!Gather(trailer_.data(), pad + kCrcSize, input)) return Step::kNeedMore;
  Cover(trailer_.data(), pad);
  TakeMarkerIfDue();  // RFC 5044, 4.4: a marker directly after the pad belongs to this FPDU
  if (sieve_ != nullptr) marker_phase_.PassClean(kCrcSize);
  phase_ = Phase::kHead;
  have_ = 0;
  if (check_crc_ && !MatchesCrc32c(crc_, trailer_.data() + pad)) return Step::kBadCrc;
  // RFC 5044, 8, error 3: meaningful only if the CRC is right.
  if (marker_wrong_) return Step::kBadMarker;
  return Step::kEnd;
}

void FpduReader::Cover(const std::byte* bytes, uint32_t n) {
  if (sieve_ == nullptr) {
    if (check_crc_) crc_ = ExtendCrc32c(crc_, Bytes(bytes, n));
    return;
  }
  while (n > 0) {
    TakeMarkerIfDue();
    const uint32_t run = std::min(n, marker_phase_.clean_left());
    if (check_crc_) crc_ = ExtendCrc32c(crc_, Bytes(bytes, run));
    marker_phase_.PassClean(run);
    raw_offset_ += run;
    if (bytes != nullptr) bytes += run;
    n -= run;
  }
}

void FpduReader::TakeMarkerIfDue() {
  if (sieve_ == nullptr || marker_phase_.clean_left() > 0) return;
  // A marker arrives before the clean bytes that follow it, so it is here.
  SDP_CHECK(!sieve_->markers().empty());
  const MarkerBytes marker = sieve_->markers().front();
  sieve_->markers().PopFront();
  marker_phase_.PassMarker();
  if (check_crc_) crc_ = ExtendCrc32c(crc_, marker);
  const uint32_t pointer = LoadBe<uint16_t>(marker.data() + 2) & ~3u;
  if (pointer != raw_offset_) marker_wrong_ = true;
  // The marker before the length field belongs to the FPDU (its CRC), but lies before the point that the
  // pointers count from.
  if (raw_offset_ > 0) raw_offset_ += kMarkerSize;
}

}  // namespace sdp::iwarp
