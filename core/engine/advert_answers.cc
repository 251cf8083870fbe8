#include "core/engine/advert_answers.h"

#include <algorithm>

namespace sdp::engine {

AbortReason AdvertAnswers::HandleSrcAvail(const wire::SrcAvail& advert, uint32_t payload, FlowMode sink_mode,
                                          bool overridden) {
  switch (sink_mode) {
    case FlowMode::kBuffered:
      return AbortReason::kUnexpectedMid;
    case FlowMode::kCombined:
      // 11.2: payload is mandatory, and each transfer ends before the next begins.
      if (payload == 0) return AbortReason::kBadAdvertisement;
      if (unanswered() || cancelled_) return AbortReason::kTooManyAdverts;
      if (owed_ != 0 && !forgiven_) return AbortReason::kUnexpectedMid;
      owed_ = 0;
      break;
    case FlowMode::kPipelined:
      if (payload != 0) return AbortReason::kBadAdvertisement;  // 11.3
      if (overridden) return AbortReason::kNone;
      break;
  }
  // 9.5.4: no new SrcAvail before the cancel is Processed.
  if (cancelling_) return AbortReason::kUnexpectedMid;
  if (src_avails_.size() + sink_avails_.size() >= max_adverts_) return AbortReason::kTooManyAdverts;
  if (advert.len == payload) {
    // All bytes came as payload, but the SrcAvail still needs an answer.
    forced_ += forced_ == src_avails_.size() ? 1 : 0;
  } else if (!read_zcopy_) {
    ++forced_;
  }
  src_avails_.push_back({.left = advert.len - payload, .stag = advert.stag, .va = advert.va + payload});
  return AbortReason::kNone;
}

AbortReason AdvertAnswers::HandlePayload(uint32_t payload) {
  if ((unanswered() || cancelled_) && payload > owed_) return AbortReason::kUnexpectedMid;
  owed_ -= std::min<uint64_t>(owed_, payload);
  return AbortReason::kNone;
}

void AdvertAnswers::HandleSrcAvailCancel() {
  // 9.5.4: exactly one SendSm, if anything was cancelled.
  if (src_avails_.empty()) {
    forgiven_ = owed_ != 0;
    return;
  }
  forced_ = 0;
  if (!in_process()) {
    src_avails_.clear();
    cancelled_ = true;
    return;
  }
  cancelling_ = true;
  dropped_ = src_avails_.size() > 1;
  src_avails_.resize(1);
}

AbortReason AdvertAnswers::HandleDisConn() const {
  // 8.2.1, 1: all transfers precede the DisConn.
  return (owed_ != 0 && !forgiven_) || !src_avails_.empty() ? AbortReason::kUnexpectedMid
                                                            : AbortReason::kNone;
}

uint64_t AdvertAnswers::advertised_bytes() const {
  uint64_t total = 0;
  for (size_t i = forced_; i < src_avails_.size(); ++i) total += src_avails_[i].left - src_avails_[i].posted;
  return cancelling_ ? 0 : total;
}

bool AdvertAnswers::rd_compl_due() const {
  return in_process() && !reading() && owed_ == 0 &&
         (src_avails_[0].done == src_avails_[0].left || stopped());
}

AdvertAnswers::RdCompl AdvertAnswers::TakeRdCompl() {
  Src& src = src_avails_[0];
  const RdCompl completed{.size = src.done, .last = src.done == src.left, .stag = src.stag};
  src.left -= src.done;
  src.va += src.done;
  src.posted = src.done = 0;
  if (src.left == 0) {
    src_avails_.erase(src_avails_.begin());
    if (forced_ != 0) --forced_;
  }
  if (cancelling_) {
    cancelling_ = false;
    cancelled_ = dropped_ || !src_avails_.empty();
    src_avails_.clear();
  }
  return completed;
}

void AdvertAnswers::SendSmTaken() {
  if (cancelled_) {
    cancelled_ = false;
    return;
  }
  if (forgiven_) owed_ = 0;
  forgiven_ = false;
  owed_ += src_avails_.front().left;
  src_avails_.erase(src_avails_.begin());
  --forced_;
}

AbortReason AdvertAnswers::HandleSinkAvail(const wire::SinkAvail& advert, FlowMode source_mode,
                                           bool leaving_pipelined) {
  if (source_mode == FlowMode::kCombined && leaving_pipelined) {
    // 12.4: ignored. A SinkAvail that crossed our payload still counts as discarded.
    ignored_was_fresh_ = advert.non_discards == potential_when_left_;
    if (!ignored_was_fresh_) {
      --potential_when_left_;
      --potential_non_discards_;
    }
    return AbortReason::kNone;
  }
  if (source_mode != FlowMode::kPipelined) return AbortReason::kUnexpectedMid;
  if (cancelling_writes_) return AbortReason::kUnexpectedMid;  // 9.5.5
  if (source_closed_) return AbortReason::kNone;               // it crossed our DisConn
  if (src_avails_.size() + sink_avails_.size() >= max_adverts_) return AbortReason::kTooManyAdverts;
  sink_avails_.push_back(advert);
  DiscardStale();
  return AbortReason::kNone;
}

void AdvertAnswers::HandleSinkAvailCancel() {
  if (sink_avails_.empty()) return;
  if (writing()) {
    cancelling_writes_ = true;
    dropped_sinks_ = sink_avails_.size() > 1;
    sink_avails_.resize(1);
    return;
  }
  sink_avails_.clear();
  sink_cancel_ack_due_ = true;
}

void AdvertAnswers::WriteCompleted(uint32_t size) {
  writing_ = false;
  written_ = size;
  wr_compl_due_ = true;
}

AdvertAnswers::RdCompl AdvertAnswers::TakeWrCompl() {
  const wire::SinkAvail sink = sink_avails_[0];
  wr_compl_due_ = false;
  sink_avails_.erase(sink_avails_.begin());
  if (cancelling_writes_) {
    // 9.5.5: acknowledged if the cancel has cancelled anything.
    cancelling_writes_ = false;
    sink_cancel_ack_due_ = dropped_sinks_ || written_ < sink.len;
  }
  return {.size = written_, .last = true, .stag = sink.stag};
}

void AdvertAnswers::PayloadSent() {
  ++potential_non_discards_;
  DiscardStale();
}

size_t AdvertAnswers::LeftPipelined() {
  const size_t discarded = sink_avails_.size();
  sink_avails_.clear();
  potential_when_left_ = potential_non_discards_;
  return discarded;
}

void AdvertAnswers::DiscardStale() {
  // 9.5.1, 4. A SinkAvail that is being written was fresh, and no payload follows until it is written.
  while (!sink_avails_.empty() && !writing() &&
         sink_avails_.front().non_discards != potential_non_discards_) {
    sink_avails_.erase(sink_avails_.begin());
    --potential_non_discards_;
  }
}

}  // namespace sdp::engine
