#include "verbs/softiwarp/proto/landing.h"

#include <algorithm>

namespace sdp::iwarp {

void Landing::Begin(MutableBytes memory, uint32_t header) {
  memory_ = memory;
  header_ = header;
  used_ = 0;
  landed_ = false;
  if (paused_ > 0) --paused_;
}

bool Landing::Fits(uint64_t offset, uint64_t size) const {
  const uint64_t room = memory_.size() - std::min<uint64_t>(used_, memory_.size());
  return offset <= room && size <= room - offset;
}

void Landing::HandleMessage(uint32_t length, bool one_segment) {
  const uint32_t payload = length > header_ ? length - header_ : 0;
  if (active()) used_ += payload;
  if (payload >= uint64_t{kLong} * worth_) {
    long_ = payload;
    few_short_ = 0;
  } else if (few_short_ < kFew) {
    ++few_short_;
  }
  if (one_segment && length == usual_) {
    ++run_;
  } else if (one_segment && length < usual_ && run_ > 0) {
    periodic_ = length == rest_ && run_ == until_rest_;
    rest_ = length;
    until_rest_ = run_;
    run_ = 0;
  } else {
    usual_ = one_segment ? length : 0;
    run_ = 1;
    periodic_ = false;
    rest_ = 0;
  }
}

uint32_t Landing::Expected(uint32_t i) const {
  uint32_t length = 0;
  if (periodic_ && run_ <= until_rest_) {
    length = (run_ + i) % (until_rest_ + 1) == until_rest_ ? rest_ : usual_;
  } else if (run_ >= kRun) {
    length = usual_;
  }
  return length > header_ ? length : 0;
}

void Landing::HandleLanded() {
  landed_ = true;
  if (++hits_ < kTrust) return;
  hits_ = 0;
  misses_ = 0;
}

void Landing::HandleMiss() {
  hits_ = 0;
  misses_ = std::min(misses_ + 1, kLongestPause);
  paused_ = 1u << misses_;
}

}  // namespace sdp::iwarp
