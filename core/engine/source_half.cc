#include "core/engine/source_half.h"

#include <algorithm>

#include "core/base/check.h"

namespace sdp::engine {
namespace {

constexpr size_t kMaxKeptPieces = 16;

}  // namespace

SourceHalf::Taken SourceHalf::Send(std::span<const Bytes> data, uint32_t capacity, uint32_t messages,
                                   size_t small, bool keep_all, bool out_of_band, uint64_t ahead) {
  SDP_CHECK(!has_staged());
  const size_t total = TotalSize(data);
  stall_ = Stall::kNone;
  if (total == 0) return {};

  // The first message cannot announce an Out-Of-Band byte this far ahead, so the byte takes one more message
  // (9.5.3). With credit for one message only, the byte waits for the next call.
  const bool far = out_of_band && total > 65535 && messages > 0;
  const bool hold_back = far && messages == 1;
  if (far && !hold_back) --messages;
  Taken taken;
  if (buffer_.size() == 0) taken.bytes = Stage(data, capacity, messages, hold_back ? total - 1 : total);
  if (taken.bytes < total) {
    const bool copied = !hold_back && (keep_all || total - taken.bytes <= small);
    if (copied) {
      taken.copied = buffer_.Append(data, taken.bytes);
      taken.bytes += taken.copied;
    }
    if (taken.bytes < total) stall_ = copied ? Stall::kRoom : Stall::kCredit;
  }
  writer_expected_ = taken.bytes < total;
  if (out_of_band && taken.bytes == total) urgent_.Mark(sent_bytes_ + ahead + pending_bytes() - 1);
  return taken;
}

size_t SourceHalf::Stage(std::span<const Bytes> data, uint32_t capacity, uint32_t messages, size_t limit) {
  size_t filled = 0;  // bytes of the message being composed
  size_t pieces = 0;
  for (Bytes piece : data) {
    piece = piece.first(std::min(piece.size(), limit - staged_bytes_));
    size_t referenced = 0;
    while (referenced < piece.size() && messages > 0) {
      const size_t n = std::min<size_t>(piece.size() - referenced, capacity - filled);
      referenced += n;
      filled += n;
      if (filled == capacity || ++pieces == kMaxPayloadPieces) {
        filled = pieces = 0;
        --messages;
      }
    }
    if (referenced != 0) staged_.push_back(piece.first(referenced));
    staged_bytes_ += referenced;
    if (messages == 0) break;
  }
  return staged_bytes_;
}

size_t SourceHalf::NextPayload(uint32_t capacity, PostSend* out, uint8_t* flags) {
  size_t count =
      urgent_.Limit(sent_bytes_, std::min<uint64_t>(capacity, has_staged() ? staged_bytes_ : buffer_.size()));
  if (has_staged()) {
    count = TakeStaged(count, out);
  } else {
    std::array<Bytes, 2> pieces;
    out->piece_count = static_cast<uint8_t>(buffer_.Take(count, &pieces));
    std::copy_n(pieces.begin(), out->piece_count, out->pieces.begin());
  }
  *flags = urgent_.TakeFlags(sent_bytes_, count);
  sent_bytes_ += count;
  return count;
}

size_t SourceHalf::TakeStaged(size_t count, PostSend* out) {
  size_t taken = 0;
  out->piece_count = 0;
  while (taken < count && out->piece_count < kMaxPayloadPieces) {
    Bytes& piece = staged_[staged_next_];
    const size_t n = std::min(piece.size(), count - taken);
    out->pieces[out->piece_count++] = piece.first(n);
    taken += n;
    piece = piece.subspan(n);
    if (piece.empty()) ++staged_next_;
  }
  staged_bytes_ -= taken;
  if (staged_bytes_ == 0) {
    staged_.clear();
    staged_next_ = 0;
    if (staged_.capacity() > kMaxKeptPieces) staged_.shrink_to_fit();
  }
  return taken;
}

void SourceHalf::Reclaim() {
  SDP_CHECK(!has_staged());  // the owner polls all actions before its next call
  buffer_.Reclaim();
}

void SourceHalf::Clear() {
  staged_.clear();
  staged_next_ = staged_bytes_ = 0;
  buffer_.Clear();
  urgent_.Clear();
}

bool SourceHalf::IsConsistent() const {
  return (staged_bytes_ == 0) == staged_.empty() && staged_next_ <= staged_.size();
}

}  // namespace sdp::engine
