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
  run_ = !one_segment ? 0 : length == usual_ ? std::min(run_ + 1, kRun) : 1;
  usual_ = length;
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
