#include "core/engine/buffer_resizing.h"

#include <algorithm>

#include "core/wire/message.h"

namespace sdp::engine {

AbortReason BufferResizing::HandleChRcvBuf(uint32_t desired, Role role, bool mutual, uint32_t limit,
                                           uint32_t posted, uint32_t* size) {
  if (answering_) return AbortReason::kUnexpectedMid;  // 10.6: one at a time
  if (mutual) {
    if (role == Role::kAccepting) return AbortReason::kNone;
    outstanding_ = false;  // the peer disregards ours, which is sent again after the answer
  }
  answering_ = true;
  const uint32_t old = *size;
  const uint32_t most = std::max(limit, old);
  *size = std::clamp(desired, std::min(wire::kMinPrivateBuffer, old), most);
  // A larger size is confirmed when no smaller buffer is left.
  old_left_ = *size > old ? posted : 0;
  return AbortReason::kNone;
}

bool BufferResizing::Ask(uint32_t size, uint32_t current) {
  if (asked_ != 0 || size == current || size < wire::kMinPrivateBuffer || size > wire::kMaxSize) return false;
  if (size > current ? no_larger_ : no_smaller_) return false;
  asked_ = size;
  return true;
}

uint32_t BufferResizing::AskTaken(uint64_t message, uint32_t current) {
  outstanding_ = true;
  asked_in_ = message;
  if (before_ == 0) before_ = current;  // a repeated request keeps the size before the first
  return std::min(current, asked_);
}

AbortReason BufferResizing::HandleChRcvBufAck(uint32_t actual) {
  if (!outstanding_) return AbortReason::kUnexpectedMid;
  const bool larger = asked_ > before_;
  const bool legal =
      actual <= wire::kMaxSize && (larger ? actual >= before_ : actual >= asked_ && actual <= before_);
  if (!legal) return AbortReason::kBadBufferSize;
  if (actual == before_) (larger ? no_larger_ : no_smaller_) = true;
  outstanding_ = false;
  asked_ = before_ = 0;
  return AbortReason::kNone;
}

}  // namespace sdp::engine
