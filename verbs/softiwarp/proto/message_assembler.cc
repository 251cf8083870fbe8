#include "verbs/softiwarp/proto/message_assembler.h"

#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace sdp::iwarp {

bool MessageAssembler::Append(Chunk* chunk, Bytes bytes, uint32_t limit) {
  if (gather_ == nullptr) {
    if (count_ > 0) {
      Piece& last = (*pieces_)[count_ - 1];
      if (last.chunk == chunk && last.data + last.length == bytes.data()) {
        last.length += static_cast<uint32_t>(bytes.size());
        return true;
      }
    }
    if (count_ < kMaxMessagePieces) {
      if (pieces_ == nullptr) pieces_ = std::make_unique<std::array<Piece, kMaxMessagePieces>>();
      RefChunk(chunk);
      (*pieces_)[count_++] = {bytes.data(), static_cast<uint32_t>(bytes.size()), chunk};
      return true;
    }
    if (!Compact(limit)) return false;
  }
  SDP_CHECK(bytes.size() <= gather_->capacity - gathered_);
  std::memcpy(gather_->data() + gathered_, bytes.data(), bytes.size());
  gathered_ += static_cast<uint32_t>(bytes.size());
  return true;
}

bool MessageAssembler::StartSegment(uint32_t length, uint32_t limit, bool gather) {
  // The owner may have posted larger buffers since the gathering began.
  if (gather_ != nullptr) return length <= gather_->capacity - gathered_ || Compact(limit);
  return !gather || Compact(limit);
}

bool MessageAssembler::CopyOut(uint32_t length) { return MoveTo(chunks_.TakeExact(length)); }

AssembledMessage MessageAssembler::Finish() {
  if (gather_ != nullptr) {
    const Piece whole{gather_->data(), std::exchange(gathered_, 0), std::exchange(gather_, nullptr)};
    return {.pieces = {whole}, .count = 1};
  }
  if (count_ == 0) return {};
  return {.pieces = *pieces_, .count = std::exchange(count_, uint8_t{0})};
}

void MessageAssembler::Drop() {
  for (size_t i = 0; i < count_; ++i) chunks_.Unref((*pieces_)[i].chunk);
  count_ = 0;
  chunks_.Unref(std::exchange(gather_, nullptr));
  gathered_ = 0;
}

bool MessageAssembler::MoveTo(Chunk* chunk) {
  if (chunk == nullptr) return false;
  uint32_t at = 0;
  for (size_t i = 0; i < count_; ++i) {
    const Piece& piece = (*pieces_)[i];
    std::memcpy(chunk->data() + at, piece.data, piece.length);
    at += piece.length;
    chunks_.Unref(piece.chunk);
  }
  count_ = 0;
  if (gather_ != nullptr) {
    std::memcpy(chunk->data(), gather_->data(), gathered_);
    at = gathered_;
    chunks_.Unref(gather_);
  }
  gather_ = chunk;
  gathered_ = at;
  return true;
}

}  // namespace sdp::iwarp
