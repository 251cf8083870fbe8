#include "core/engine/urgent_data.h"

#include <algorithm>

#include "core/wire/bsdh.h"

namespace sdp::engine {
namespace {

constexpr uint64_t kMaxAhead = 65535;  // 9.5.3

}  // namespace

size_t UrgentSource::Limit(uint64_t start, size_t count) const {
  if (marks_.empty()) return count;
  count = std::min<uint64_t>(count, marks_.front() + 1 - start);
  if (announced_ < marks_.size() && marks_[announced_] - start > kMaxAhead) {
    count = std::min<uint64_t>(count, marks_[announced_] - kMaxAhead - start);
  }
  return count;
}

uint8_t UrgentSource::TakeFlags(uint64_t start, size_t count) {
  uint8_t flags = 0;
  if (announcement_due(start)) {
    flags |= wire::kOobPend;
    ++announced_;
  }
  if (count != 0 && !marks_.empty() && marks_.front() == start + count - 1) {
    flags |= wire::kOobPres;
    marks_.erase(marks_.begin());
    --announced_;
  }
  return flags;
}

bool UrgentSource::announcement_due(uint64_t start) const {
  return announced_ < marks_.size() && marks_[announced_] - start <= kMaxAhead;
}

AbortReason UrgentSink::HandleFlags(uint8_t flags) {
  if (flags & wire::kOobPend) {
    ++announced_;
    ++announcements_;
  }
  if (flags & wire::kOobPres) {
    if (announced_ == 0) return AbortReason::kBadFlags;
    --announced_;
  }
  return AbortReason::kNone;
}

void UrgentSink::Arrived(std::byte value, uint64_t position) {
  mark_ = position;
  if (inline_) {
    byte_.reset();
  } else {
    byte_ = value;
  }
}

std::optional<std::byte> UrgentSink::Take() {
  const auto value = byte_;
  byte_.reset();
  return value;
}

uint64_t UrgentSink::Limit(uint64_t position, uint64_t count) const {
  if (mark_ && *mark_ > position) return std::min(count, *mark_ - position);
  return count;
}

void UrgentSink::Passed(uint64_t position) {
  if (mark_ && position > *mark_) mark_.reset();
}

}  // namespace sdp::engine
