// Collects the payload of one received Send: pieces in the chunks they arrived in, or, when the link splits
// it too finely, gathered into one.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_MESSAGE_ASSEMBLER_H_
#define SDP_VERBS_SOFTIWARP_PROTO_MESSAGE_ASSEMBLER_H_

#include <array>
#include <cstdint>

#include "core/base/types.h"
#include "verbs/softiwarp/proto/chunk_pool.h"

namespace sdp::iwarp {

inline constexpr size_t kMaxMessagePieces = 8;

struct Piece {
  const std::byte* data = nullptr;
  uint32_t length = 0;
  Chunk* chunk = nullptr;  // holds a reference on it
};

struct AssembledMessage {
  std::array<Piece, kMaxMessagePieces> pieces{};
  uint8_t count = 0;
};

class MessageAssembler {
 public:
  // Chunks come from `chunks` and go back there; kept.
  explicit MessageAssembler(ChunkSet& chunks) : chunks_(chunks) {}
  MessageAssembler(const MessageAssembler&) = delete;
  MessageAssembler& operator=(const MessageAssembler&) = delete;
  ~MessageAssembler() { Drop(); }

  // Payload that lies in `chunk` (a reference is taken). `limit`: what the message may grow to, at least what
  // is there with this segment. False: no memory.
  bool Append(Chunk* chunk, Bytes bytes, uint32_t limit);
  // The next segment brings `length` bytes. `gather`: the message had better be gathered from here on, with
  // what came before. False: no memory.
  bool StartSegment(uint32_t length, uint32_t limit, bool gather);
  // Where the next payload bytes go while gathering (the caller places them, then calls HandlePlaced);
  // nullptr otherwise.
  [[nodiscard]] std::byte* gather_place() {
    return gather_ == nullptr ? nullptr : gather_->data() + gathered_;
  }
  void HandlePlaced(uint32_t n) { gathered_ += n; }

  // The message, complete with `length` bytes, moves to memory of just its size. False: no memory.
  bool CopyOut(uint32_t length);
  // The message is complete: hands over the pieces with their references and starts afresh.
  AssembledMessage Finish();
  void Drop();
  // In which the message lies so far.
  [[nodiscard]] size_t pieces() const { return gather_ != nullptr ? 1 : message_.count; }

 private:
  friend struct Frozen;
  bool Compact(uint32_t limit) { return MoveTo(chunks_.Take(limit)); }
  bool MoveTo(Chunk* chunk);

  ChunkSet& chunks_;
  AssembledMessage message_;
  Chunk* gather_ = nullptr;
  uint32_t gathered_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_MESSAGE_ASSEMBLER_H_
