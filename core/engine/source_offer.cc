#include "core/engine/source_offer.h"

#include <algorithm>

#include "core/base/check.h"

namespace sdp::engine {

void SourceOffer::Begin(const SourceBuffer& buffer) {
  SDP_CHECK(!active_ && !result_);
  *this = {};
  buffer_ = buffer;
  active_ = true;
}

wire::SrcAvail SourceOffer::Advertise(uint64_t message, uint32_t payload) {
  SDP_CHECK(idle() && payload < left());
  const wire::SrcAvail advert{
      .len = static_cast<uint32_t>(left()), .stag = buffer_.stag, .va = buffer_.va + taken_};
  advertised_ = left() - payload;
  advertised_in_ = message;
  return advert;
}

Bytes SourceOffer::TakePayload(uint64_t size) {
  const Bytes payload = rest().first(size);
  taken_ += size;
  forced_ -= std::min(forced_, size);
  return payload;
}

Bytes SourceOffer::BeginWrite(uint64_t size) {
  SDP_CHECK(idle());
  writing_ = size;
  return rest().first(size);
}

uint32_t SourceOffer::WriteCompleted() {
  const auto size = static_cast<uint32_t>(writing_);
  taken_ += writing_;
  writing_ = 0;
  return size;
}

AbortReason SourceOffer::HandleRdmaRdCompl(uint32_t size, const std::optional<STag>& invalidated) {
  if (advertised_ == 0) return AbortReason::kUnexpectedMid;
  if (size > advertised_) return AbortReason::kBadCompletion;
  if (invalidated) {
    if (*invalidated != buffer_.stag) return AbortReason::kBadInvalidate;
    stag_gone_ = true;
  }
  taken_ += size;
  advertised_ -= size;
  if (advertised_ == 0) cancel_.reset();  // 9.5.4: thereby Processed
  return AbortReason::kNone;
}

AbortReason SourceOffer::HandleSendSm(uint64_t acknowledged) {
  if (advertised_ == 0) return AbortReason::kUnexpectedMid;
  const bool cancelled = cancel_ && acknowledged > *cancel_;
  if (!cancelled) forced_ = advertised_;
  advertised_ = 0;
  cancel_.reset();
  return AbortReason::kNone;
}

void SourceOffer::Overridden() {
  advertised_ = 0;
  cancel_.reset();
}

void SourceOffer::Finish(uint64_t done) {
  if (!active_) return;
  result_ = OfferResult{.bytes = taken_ + done, .invalidated = stag_gone_};
  active_ = false;
  advertised_ = forced_ = writing_ = 0;
  cancel_.reset();
  buffer_ = {};
  taken_ = 0;
}

std::optional<OfferResult> SourceOffer::TakeResult() {
  const auto result = result_;
  result_.reset();
  return result;
}

}  // namespace sdp::engine
