// Reading into the landing: see landing.h.
#include <algorithm>

#include "core/base/check.h"
#include "verbs/softiwarp/proto/receive_stream.h"

namespace sdp::iwarp {
namespace {

constexpr uint32_t kHeadSize = kMpaLengthSize + kUntaggedHeaderSize;
// Where nothing is known of the next message, this much of it is looked at: short ones come whole, and of a
// long one little is copied.
constexpr size_t kSip = 2048;

}  // namespace

void ReceiveStream::Land(MutableBytes memory, uint32_t header) {
  SDP_DCHECK(!reading_ && message_.landed() == 0);
  if (!options_.crc && sieve_ == nullptr) landing_.Begin(memory, header);
}

bool ReceiveStream::EndLanding() {
  landing_.End();
  if (message_.LeaveLanding()) return true;
  message_.Drop();
  failed_ = true;
  return false;
}

// Along the stream: the rest of the message under way, and then messages as they are expected.
bool ReceiveStream::PrepareLanding() {
  if (!landing_.active() || failed_ || judge_.ExpectsPlacement(nullptr)) return false;
  const uint32_t header = landing_.header();
  const uint32_t left = reader_.payload_left();
  const bool in_message = reader_.in_segment() && placement_.kind == Placement::Kind::kMessage;
  if (left > 0 && (!in_message || dropping_)) return false;
  target_count_ = 0;
  outside_ = 0;
  direct_ = false;

  size_t gap;        // bytes for the chunk before the next place
  uint64_t at = 0;   // where in the landing that is
  uint32_t end = 0;  // of the message under way
  bool message_over = true;
  if (in_message) {
    message_over = header_.last;
    const uint32_t position = message_position();
    const uint32_t head = std::min(left, header - std::min(header, position));
    const uint32_t body = left - head;
    end = position + left;
    at = end - std::min(header, end);
    gap = left;
    if (body >= options_.worth_placing) {
      if (!landing_.Fits(at - body, body)) return false;
      const MutableBytes place = landing_.At(at - body, body);
      if (!message_.can_land(place.data())) return false;
      AddLanding(head, place);
      gap = 0;
    }
    gap += left > 0 ? reader_.trailer_size() + kHeadSize : reader_.overhead_left();
  } else {
    message_over = judge_.message_offset() == 0;
    gap = reader_.overhead_left();
  }
  if (message_over) gap += header;
  if (target_count_ == 0 && !(message_over && landing_.LooksLong(at))) return false;

  // Only if what is under way is as it was expected, too.
  bool known = message_over && (!in_message || end == landing_.Expected(0));
  for (uint32_t i = 0; known && i < landing_.most(); ++i) {
    const uint32_t length = landing_.Expected(in_message ? i + 1 : i);
    known = length > 0;
    if (!known || !landing_.Fits(at, length - header)) break;
    if (length - header >= options_.worth_placing) {
      AddLanding(gap, landing_.At(at, length - header));
      gap = 0;
    } else {
      gap += length - header;
    }
    gap += PadSize(kUntaggedHeaderSize + length) + kCrcSize + kHeadSize + header;
    at += length - header;
  }
  targets_[target_count_++] =
      MutableBytes(static_cast<std::byte*>(nullptr), known ? gap : std::max(gap, kSip));
  return true;
}

void ReceiveStream::AddLanding(size_t gap, MutableBytes place) {
  if (gap > 0) targets_[target_count_++] = MutableBytes(static_cast<std::byte*>(nullptr), gap);
  outside_ |= uint64_t{1} << target_count_;
  targets_[target_count_++] = place;
}

bool ReceiveStream::PutTargetsInChunk() {
  size_t wanted = 0;
  for (size_t i = 0; i < target_count_; ++i) wanted += outside(i) ? 0 : targets_[i].size();
  if (chunk_ != nullptr && chunk_->refs == 1) fill_ = 0;
  if (chunk_ == nullptr || chunk_->capacity - fill_ < wanted) {
    DropChunk();
    chunk_ = chunks_.Take(wanted);
    if (chunk_ == nullptr) return false;
  }
  uint32_t at = fill_;
  for (size_t i = 0; i < target_count_; ++i) {
    if (outside(i)) continue;
    targets_[i] = MutableBytes(chunk_->data() + at, targets_[i].size());
    at += static_cast<uint32_t>(targets_[i].size());
  }
  return true;
}

bool ReceiveStream::Lands(MutableBytes target, size_t n) {
  if (n > reader_.payload_left() || dropping_ || placement_.kind != Placement::Kind::kMessage) return false;
  const uint32_t position = message_position();
  const uint32_t header = landing_.header();
  if (position < header || !message_.can_land(target.data())) return false;
  if (!landing_.Fits(position - header, n) || landing_.At(position - header, n).data() != target.data())
    return false;
  const auto size = static_cast<uint32_t>(n);
  reader_.HandlePlaced(size);
  placed_ += size;
  message_.Land(target.data(), size);
  landing_.HandleLanded();
  return true;
}

}  // namespace sdp::iwarp
