#include "verbs/softiwarp/proto/message_assembler.h"

#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace sdp::iwarp {

bool MessageAssembler::Append(Chunk* chunk, Bytes bytes, uint32_t limit) {
  if (gather_ == nullptr) {
    if (message_.count > 0) {
      Piece& last = message_.pieces[message_.count - 1];
      if (last.chunk == chunk && last.data + last.length == bytes.data()) {
        last.length += static_cast<uint32_t>(bytes.size());
        return true;
      }
    }
    if (message_.count < kMaxMessagePieces) {
      RefChunk(chunk);
      message_.pieces[message_.count++] = {bytes.data(), static_cast<uint32_t>(bytes.size()), chunk};
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
    message_.pieces[0] = {gather_->data(), gathered_, std::exchange(gather_, nullptr)};
    message_.count = 1;
    gathered_ = 0;
  }
  const AssembledMessage done = message_;
  message_.count = 0;
  return done;
}

void MessageAssembler::Drop() {
  for (size_t i = 0; i < message_.count; ++i) chunks_.Unref(message_.pieces[i].chunk);
  message_.count = 0;
  chunks_.Unref(std::exchange(gather_, nullptr));
  gathered_ = 0;
}

bool MessageAssembler::MoveTo(Chunk* chunk) {
  if (chunk == nullptr) return false;
  uint32_t at = 0;
  for (size_t i = 0; i < message_.count; ++i) {
    const Piece& piece = message_.pieces[i];
    std::memcpy(chunk->data() + at, piece.data, piece.length);
    at += piece.length;
    chunks_.Unref(piece.chunk);
  }
  message_.count = 0;
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
