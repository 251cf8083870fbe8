// The sending half of one connection without its socket: messages come in, and FPDUs go out as ranges of
// bytes for few large system calls. The QueuePair's owner serialises all calls.
//
// No message is framed before it is sent. A message waits as its header and references to its payload, and is
// cut into segments (RFC 5041, section 5.2) when a batch is made. Only a frame that the link has taken in
// part is kept as a frame.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_SEND_QUEUE_H_
#define SDP_VERBS_SOFTIWARP_PROTO_SEND_QUEUE_H_

#include <array>
#include <cstdint>
#include <span>

#include "core/base/types.h"
#include "verbs/softiwarp/proto/chunk_pool.h"
#include "verbs/softiwarp/proto/growing_ring.h"
#include "verbs/softiwarp/proto/send_batch.h"
#include "verbs/softiwarp/proto/unread_payload.h"
#include "verbs/softiwarp/wire/opcode_table.h"

namespace sdp::iwarp {

struct SendOptions {
  bool crc = false;  // compute the CRC; otherwise the field is zero
  bool markers = false;
  uint32_t max_ulpdu = kMaxSentUlpdu;  // at least kSmallestUlpdu
};

// A message to send. Post() gives an untagged message its MSN.
struct OutgoingMessage {
  WorkId id{};
  bool signaled = false;
  bool silent = false;  // neither success nor failure is reported
  RdmapOpcode opcode = RdmapOpcode::kSend;
  STag stag{};      // tagged: the sink's STag; Send with Invalidate: the STag to invalidate
  uint64_t to = 0;  // tagged
  Bytes header{};   // at most kMaxUlpHeader; copied
  std::span<const Bytes> payload{};
  STag source{};  // if set, the payload is registered memory under this STag; otherwise it is borrowed
};

// A finished message. Signaled work, Read Responses and all failures are reported, except of silent messages.
struct SendDone {
  WorkId id{};
  RdmapOpcode opcode = RdmapOpcode::kSend;
  bool flushed = false;  // not sent, or not completely
};

class SendQueue {
 public:
  explicit SendQueue(const SendOptions& options) : options_(options) {}
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;
  ~SendQueue() { Abandon(); }

  void Post(const OutgoingMessage& message);
  // Lets borrowed payload lie in `unread`, until it is set to null. Not with CRC or markers. Batches refer to
  // this payload, and Detach reads it.
  void set_unread(const UnreadPayload* unread) { unread_ = unread; }
  [[nodiscard]] const SendOptions& options() const { return options_; }
  [[nodiscard]] size_t size() const { return messages_.size(); }
  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] uint64_t unsent_bytes() const { return unsent_; }
  [[nodiscard]] uint64_t fpdus() const { return fpdus_; }

  // For a queue that is empty, without CRC and markers: returns true if a message of `size` bytes is one
  // FPDU.
  [[nodiscard]] bool MayFrameDirectly(size_t size) const {
    return messages_.empty() && !options_.crc && !options_.markers && unread_ == nullptr &&
           size <= options_.max_ulpdu - kUntaggedHeaderSize;
  }
  static constexpr size_t kDirectPrefix = kMpaLengthSize + kUntaggedHeaderSize;
  // Returns the size of that FPDU.
  [[nodiscard]] static size_t FramedSize(size_t size) {
    return kDirectPrefix + size + PadSize(static_cast<uint32_t>(kUntaggedHeaderSize + size)) + kCrcSize;
  }
  // Frames such a message: writes what precedes it to `prefix`. Returns the size of the trailer, which is all
  // zero. If the link takes all of it, NoteFramed() follows. If it takes less, the owner posts the message.
  size_t FrameDirectly(uint32_t size, std::span<std::byte, kDirectPrefix> prefix) const;
  void NoteFramed() {
    ++next_msn_[kSendQueue];
    ++fpdus_;
  }

  // Fills `batch` with the next bytes to send, and takes nothing off the queue. The batch is valid until the
  // next call of any other method.
  void BuildBatch(SendBatch* batch);
  // Notes that the link took the first `raw` bytes of the batch.
  void HandleSent(const SendBatch& batch, size_t raw);
  bool PollDone(SendDone* out);

  // Copies borrowed payload and returns how many bytes. Afterwards the queue references no memory of the
  // poster. Sets *failed if memory is lacking or the payload cannot be read; the stream cannot continue then.
  uint64_t Detach(bool* failed);
  // Copies the unsent bytes of the memory under `source`, because the queue may not read it any more.
  uint64_t DetachSource(STag source, bool* failed);

  // Flushes every message that has not begun, and completes a frame that the link has in part. `terminate` is
  // then the last message (RFC 5040, section 5.4).
  void Terminate(Bytes terminate);
  // Flushes every message.
  void Abandon();

 private:
  friend struct Frozen;
  struct Message {
    WorkId id;
    uint64_t to;
    STag stag;
    uint32_t msn;
    uint32_t size;  // header and payload
    uint32_t done;  // bytes in frames that have left
    RdmapOpcode opcode;
    uint8_t header_size;
    bool signaled;
    bool silent;
    std::array<std::byte, kMaxUlpHeader> header;
  };
  struct Payload {
    const std::byte* data;
    Chunk* chunk;  // holds a reference if the bytes are a copy of ours
    uint32_t length;
    bool borrowed;
    STag source;
  };
  // A position in payload_.
  struct Cursor {
    size_t index = 0;
    uint32_t offset = 0;
  };

  void MakeFrame(const Message& message, uint32_t offset, Cursor cursor, uint16_t phase, Frame* frame);
  // Adds the frame's bytes from raw_sent on; returns false if the batch is full before its end.
  bool AddFrame(const Frame& frame, Cursor* cursor, SendBatch* batch);
  template <typename Fn>
  bool Walk(const Frame& frame, Cursor* cursor, Fn&& fn) const;
  void CompleteFrame(const Frame& frame);
  void Trim(uint32_t payload_bytes);
  // Returns how many payload bytes are among the frame's octets up to raw_sent.
  [[nodiscard]] uint32_t PayloadSent(const Frame& frame) const;
  bool CopyOut(Payload* payload);
  void Report(const Message& message, bool flushed);
  void FlushMessages();

  [[nodiscard]] bool IsUnread(const std::byte* at) const { return unread_ != nullptr && unread_->Holds(at); }

  const SendOptions options_;
  const UnreadPayload* unread_ = nullptr;
  GrowingRing<Message> messages_;
  GrowingRing<Payload> payload_;  // the unsent payload of all messages, in order
  GrowingRing<SendDone> done_;
  Frame partial_;  // the frame that has left in part
  bool has_partial_ = false;
  // The clean position, modulo kCleanInterval, after all complete frames and partial_.
  uint16_t marker_phase_ = 0;
  uint32_t next_msn_[kQueueCount] = {1, 1, 1};
  uint64_t unsent_ = 0;
  uint64_t fpdus_ = 0;
  Chunk* copies_ = nullptr;  // what Detach fills; holds a reference
  uint32_t copies_used_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_SEND_QUEUE_H_
