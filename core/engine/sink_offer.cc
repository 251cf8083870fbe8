#include "core/engine/sink_offer.h"

#include <algorithm>

#include "core/base/check.h"

namespace sdp::engine {

void SinkOffer::Begin(const SinkBuffer& buffer) {
  SDP_CHECK(!active_ && !result_);
  buffer_ = buffer;
  posted_ = filled_ = 0;
  reads_ = 0;
  active_ = true;
  revoked_ = moved_ = advertised_ = invalidated_ = false;
  cancel_.reset();
}

PostRdmaRead SinkOffer::Read(WorkId id, uint32_t length, STag remote, uint64_t va) {
  SDP_CHECK(reads_ < kMaxReads && length <= room());
  outstanding_[reads_++] = {static_cast<uint32_t>(id.value()), length};
  const PostRdmaRead read{.id = id,
                          .length = length,
                          .local_stag = buffer_.stag,
                          .local_va = buffer_.va + posted_,
                          .remote_stag = remote,
                          .remote_va = va};
  posted_ += length;
  return read;
}

uint32_t SinkOffer::ReadCompleted(WorkId id) {
  if (reads_ == 0 || outstanding_[0].id != static_cast<uint32_t>(id.value())) return 0;
  const uint32_t length = outstanding_[0].length;
  std::move(outstanding_.begin() + 1, outstanding_.begin() + reads_, outstanding_.begin());
  --reads_;
  filled_ += length;
  return length;
}

wire::SinkAvail SinkOffer::Advertise() {
  SDP_CHECK(wants_advertising());
  advertised_ = true;
  return {.len = static_cast<uint32_t>(size()),
          .stag = buffer_.stag,
          .va = buffer_.va,
          .non_discards = non_discards_};
}

AbortReason SinkOffer::HandleRdmaWrCompl(uint32_t size, const std::optional<STag>& invalidated,
                                         uint64_t acknowledged) {
  if (!advertised_) return AbortReason::kUnexpectedMid;
  if (size > this->size()) return AbortReason::kBadCompletion;
  if (invalidated && *invalidated != buffer_.stag) return AbortReason::kBadInvalidate;
  invalidated_ = invalidated.has_value();
  filled_ = size;
  // If the message left the peer after the cancel arrived, the rest was cancelled, and a SinkCancelAck
  // follows. Otherwise the cancel finds nothing, and the peer ignores it.
  if (cancel_ && acknowledged > *cancel_) ack_expected_ = size < this->size();
  Finish();
  return AbortReason::kNone;
}

AbortReason SinkOffer::HandleSinkCancelAck() {
  if (cancels_ == 0) return AbortReason::kUnexpectedMid;
  cancels_ = 0;
  if (!ack_expected_ && cancel_) Finish();
  ack_expected_ = false;
  return AbortReason::kNone;
}

void SinkOffer::HandlePayload() {
  if (!advertised_) ++non_discards_;
  // A buffer that the peer does not know of is given back as well: the reader must see the data that came.
  if (active_ && reads_ == 0) Finish();
}

void SinkOffer::Unadvertise() {
  if (!advertised_) return;
  advertised_ = false;
  cancel_.reset();
  if (revoked_) Finish();
}

void SinkOffer::Revoke() {
  if (!active_) return;
  revoked_ = true;
  if (reads_ == 0 && !advertised_) Finish();
}

uint64_t SinkOffer::Move(MutableBytes data) {
  buffer_.data = data;
  moved_ = true;
  const uint64_t filled = filled_;
  Revoke();
  return filled;
}

void SinkOffer::Finish() {
  if (!active_) return;
  result_ = OfferResult{.bytes = filled_, .invalidated = invalidated_};
  active_ = revoked_ = moved_ = advertised_ = false;
  reads_ = 0;
  cancel_.reset();
  buffer_ = {};
  posted_ = filled_ = 0;
}

std::optional<OfferResult> SinkOffer::TakeResult() {
  const auto result = result_;
  result_.reset();
  return result;
}

}  // namespace sdp::engine
