// Collects the payload of one received Send: as pieces in the chunks where they arrived, or gathered into one
// chunk when the link splits the message too finely.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_MESSAGE_ASSEMBLER_H_
#define SDP_VERBS_SOFTIWARP_PROTO_MESSAGE_ASSEMBLER_H_

#include <array>
#include <cstdint>
#include <memory>

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
  // `chunks` supplies chunks and takes them back, and outlives this.
  explicit MessageAssembler(ChunkSet& chunks) : chunks_(chunks) {}
  MessageAssembler(const MessageAssembler&) = delete;
  MessageAssembler& operator=(const MessageAssembler&) = delete;
  ~MessageAssembler() { Drop(); }

  // Adds payload that lies in `chunk`, and takes a reference to it. `limit`: the size that the message may
  // reach, at least its size with this segment. Returns false if memory is lacking.
  bool Append(Chunk* chunk, Bytes bytes, uint32_t limit);
  // Prepares for the next segment of `length` bytes. `gather`: gathers the message from here on, with earlier
  // segments. Returns false if memory is lacking.
  bool StartSegment(uint32_t length, uint32_t limit, bool gather);
  // While gathering, returns where the next payload bytes go: the caller puts them there, then calls
  // HandlePlaced. Otherwise returns nullptr.
  [[nodiscard]] std::byte* gather_place() {
    return gather_ == nullptr ? nullptr : gather_->data() + gathered_;
  }
  void HandlePlaced(uint32_t n) { gathered_ += n; }

  // Moves the complete message of `length` bytes to memory of its size. Returns false if memory is lacking.
  bool CopyOut(uint32_t length);
  // Ends the complete message: returns the pieces with their references. The next message begins.
  AssembledMessage Finish();
  void Drop();
  // Returns the number of pieces that the message has so far.
  [[nodiscard]] size_t pieces() const { return gather_ != nullptr ? 1 : count_; }

 private:
  friend struct Frozen;
  bool Compact(uint32_t limit) { return MoveTo(chunks_.Take(limit)); }
  bool MoveTo(Chunk* chunk);

  ChunkSet& chunks_;
  std::unique_ptr<std::array<Piece, kMaxMessagePieces>> pieces_;  // made when first needed
  uint8_t count_ = 0;
  Chunk* gather_ = nullptr;
  uint32_t gathered_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_MESSAGE_ASSEMBLER_H_
