#include "core/engine/advert_answers.h"

#include <algorithm>

#include "core/base/check.h"

namespace sdp::engine {

AbortReason AdvertAnswers::HandleSrcAvail(const wire::SrcAvail& advert, uint32_t payload,
                                          FlowMode sink_mode) {
  switch (sink_mode) {
    case FlowMode::kBuffered:
      return AbortReason::kUnexpectedMid;
    case FlowMode::kCombined:
      // 11.2: payload is mandatory, and one transfer at a time, finished before the next.
      if (payload == 0) return AbortReason::kBadAdvertisement;
      if (send_sm_due()) return AbortReason::kTooManyAdverts;
      if (owed_ != 0 && !forgiven_) return AbortReason::kUnexpectedMid;
      owed_ = 0;
      break;
    case FlowMode::kPipelined:
      if (payload != 0) return AbortReason::kBadAdvertisement;  // 11.3
      break;
  }
  if (src_avails_.size() + sink_avails_.size() >= max_adverts_) return AbortReason::kTooManyAdverts;
  src_avails_.push_back(advert.len - payload);
  return AbortReason::kNone;
}

AbortReason AdvertAnswers::HandlePayload(uint32_t payload) {
  if (send_sm_due() && payload > owed_) return AbortReason::kUnexpectedMid;
  owed_ -= std::min<uint64_t>(owed_, payload);
  return AbortReason::kNone;
}

void AdvertAnswers::HandleSrcAvailCancel() {
  // 9.5.4: exactly one SendSm, if anything was cancelled.
  if (src_avails_.empty()) {
    forgiven_ = owed_ != 0;
    return;
  }
  src_avails_.clear();
  cancelled_ = true;
}

AbortReason AdvertAnswers::HandleDisConn() const {
  // 8.2.1, 1: all transfers come before it.
  return (owed_ != 0 && !forgiven_) || !src_avails_.empty() ? AbortReason::kUnexpectedMid
                                                            : AbortReason::kNone;
}

void AdvertAnswers::SendSmTaken() {
  if (cancelled_) {
    cancelled_ = false;
    return;
  }
  if (forgiven_) owed_ = 0;
  forgiven_ = false;
  owed_ += src_avails_.front();
  src_avails_.erase(src_avails_.begin());
}

AbortReason AdvertAnswers::HandleSinkAvail(const wire::SinkAvail& advert, FlowMode source_mode,
                                           bool leaving_pipelined) {
  if (source_mode == FlowMode::kCombined && leaving_pipelined) {
    // 12.4: ignored; one that crossed our payload counts as discarded all the same.
    if (advert.non_discards != potential_when_left_) {
      --potential_when_left_;
      --potential_non_discards_;
    }
    return AbortReason::kNone;
  }
  if (source_mode != FlowMode::kPipelined) return AbortReason::kUnexpectedMid;
  if (src_avails_.size() + sink_avails_.size() >= max_adverts_) return AbortReason::kTooManyAdverts;
  sink_avails_.push_back(advert.non_discards);
  DiscardStale();
  return AbortReason::kNone;
}

void AdvertAnswers::HandleSinkAvailCancel() {
  if (sink_avails_.empty()) return;
  sink_avails_.clear();
  sink_cancel_ack_due_ = true;
}

void AdvertAnswers::PayloadSent() {
  ++potential_non_discards_;
  DiscardStale();
}

void AdvertAnswers::LeftPipelined() {
  sink_avails_.clear();
  potential_when_left_ = potential_non_discards_;
}

void AdvertAnswers::DiscardStale() {
  while (!sink_avails_.empty() && sink_avails_.front() != potential_non_discards_) {  // 9.5.1, 4
    sink_avails_.erase(sink_avails_.begin());
    --potential_non_discards_;
  }
}

}  // namespace sdp::engine
