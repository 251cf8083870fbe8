// What one system call sends: ranges of bytes, and the headers and short payloads that the ranges point to.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_SEND_BATCH_H_
#define SDP_VERBS_SOFTIWARP_PROTO_SEND_BATCH_H_

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/types.h"
#include "verbs/softiwarp/proto/fpdu_reader.h"
#include "verbs/softiwarp/wire/ddp_header.h"

namespace sdp::iwarp {

inline constexpr size_t kMaxUlpHeader = 64;
// Length, DDP header and the ULP's own header, contiguous.
inline constexpr size_t kMaxPrefix = kMpaLengthSize + kUntaggedHeaderSize + kMaxUlpHeader;
inline constexpr size_t kMaxTrailer = 3 + kCrcSize;

// One outgoing FPDU. The send queue's list of payload has its payload.
struct Frame {
  std::array<std::byte, kMaxPrefix> prefix;
  std::array<std::byte, kMaxTrailer> trailer;
  uint8_t prefix_size;
  uint8_t trailer_size;
  uint16_t marker_phase;  // the clean position of its first octet, modulo kCleanInterval
  uint32_t payload_size;
  uint32_t payload_gone;  // the part that has left the list because the link took it
  uint32_t message_size;  // bytes of the message in this frame: ULP header and payload
  uint32_t raw_size;      // on the link, markers included
  uint32_t raw_sent;
  bool last;  // the last frame of its message

  [[nodiscard]] uint32_t clean_size() const { return prefix_size + payload_size + trailer_size; }
};

// A SendBatch lives on the stack of the sending call. A frame that was sent in part is copied out of it.
class SendBatch {
 public:
  // The arrays are not initialised: the counts show how much of them is in use.
  SendBatch() {}
  static constexpr size_t kMaxFrames = 48;
  static constexpr size_t kMaxParts = 160;
  // A payload of up to this size is copied next to its header. That costs less than a range of its own, and a
  // single message then needs only a plain send.
  static constexpr size_t kInline = 1024;

  // Returns the ranges in sendmsg's form. No call writes through them.
  [[nodiscard]] std::span<const iovec> parts() const { return std::span(parts_).first(part_count_); }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  friend class SendQueue;
  static constexpr size_t kArena = 8 * 1024;

  // Return false if there is no room.
  bool AddReference(Bytes bytes) {
    if (bytes.empty()) return true;
    if (part_count_ > 0) {
      iovec& last = parts_[part_count_ - 1];
      if (static_cast<std::byte*>(last.iov_base) + last.iov_len == bytes.data()) {
        last.iov_len += bytes.size();
        size_ += bytes.size();
        return true;
      }
    }
    if (part_count_ == kMaxParts) return false;
    parts_[part_count_++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    size_ += bytes.size();
    return true;
  }
  bool AddCopy(Bytes bytes) {
    if (bytes.size() > arena_.size() - arena_used_) return false;
    std::byte* to = arena_.data() + arena_used_;
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    if (!AddReference(Bytes(to, bytes.size()))) return false;
    arena_used_ += bytes.size();
    return true;
  }

  size_t size_ = 0;
  size_t part_count_ = 0;
  size_t frame_count_ = 0;
  size_t arena_used_ = 0;
  std::array<iovec, kMaxParts> parts_;
  std::array<Frame, kMaxFrames> frames_;
  std::array<std::byte, kArena> arena_;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_SEND_BATCH_H_
