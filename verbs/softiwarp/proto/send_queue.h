// The sending half of a connection without its socket: messages come in, and FPDUs go out as ranges of bytes
// for few large system calls.
//
// Nothing is framed before it is sent. A message waits as its header and references to its payload, and is
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
  bool crc = false;  // compute it; otherwise the field is zero
  bool markers = false;
  uint32_t max_ulpdu = kMaxSentUlpdu;  // at least 128
};

// A message to send. Untagged ones get their MSN here.
struct OutgoingMessage {
  WorkId id{};
  bool signaled = false;
  bool silent = false;  // its end is not reported, good or bad
  RdmapOpcode opcode = RdmapOpcode::kSend;
  STag stag{};      // tagged: where to; Send with Invalidate: what
  uint64_t to = 0;  // tagged
  Bytes header{};   // at most kMaxUlpHeader; copied
  std::span<const Bytes> payload{};
  STag source{};  // payload is registered memory under this STag (Read Response); otherwise it is borrowed
};

// A message that is over. Reported are signaled work, Read Responses and whatever failed.
struct SendDone {
  WorkId id{};
  RdmapOpcode opcode = RdmapOpcode::kSend;
  bool flushed = false;  // not (completely) sent
};

class SendQueue {
 public:
  explicit SendQueue(const SendOptions& options) : options_(options) {}
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;
  ~SendQueue() { Abandon(); }

  void Post(const OutgoingMessage& message);
  // Until it is null again, borrowed payload may lie in `unread`. Not with CRC or markers. Batches refer to
  // it, Detach reads it.
  void set_unread(const UnreadPayload* unread) { unread_ = unread; }
  [[nodiscard]] const SendOptions& options() const { return options_; }
  [[nodiscard]] size_t size() const { return messages_.size(); }
  [[nodiscard]] bool empty() const { return messages_.empty(); }
  [[nodiscard]] uint64_t unsent_bytes() const { return unsent_; }
  [[nodiscard]] uint64_t fpdus() const { return fpdus_; }

  // Fills `batch` with what is next to be sent, and takes nothing off the queue. The batch is valid until the
  // next call of any other method.
  void BuildBatch(SendBatch* batch);
  // The link took the first `raw` bytes of the batch.
  void HandleSent(const SendBatch& batch, size_t raw);
  bool PollDone(SendDone* out);

  // Copies borrowed payload and returns how many bytes. Afterwards no memory of the poster is referenced.
  // Sets *failed if there is no memory or the payload cannot be read: then the stream cannot go on.
  uint64_t Detach(bool* failed);
  // Copies what is still to be sent of the memory under `source`, which may not be read any more.
  uint64_t DetachSource(STag source, bool* failed);

  // Flushes every message that has not begun, and completes a frame that the link has in part. `terminate`
  // follows as the last message (RFC 5040, section 5.4).
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
    uint32_t done;  // bytes of it in frames that have left
    RdmapOpcode opcode;
    uint8_t header_size;
    bool signaled;
    bool silent;
    std::array<std::byte, kMaxUlpHeader> header;
  };
  struct Payload {
    const std::byte* data;
    Chunk* chunk;  // holds a reference: a copy of ours
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
  // Adds the frame's bytes from raw_sent on; false when the batch is full before its end.
  bool AddFrame(const Frame& frame, Cursor* cursor, SendBatch* batch);
  template <typename Fn>
  bool Walk(const Frame& frame, Cursor* cursor, Fn&& fn) const;
  void CompleteFrame(const Frame& frame);
  void Trim(uint32_t payload_bytes);
  // How much of the frame's payload is among its octets up to raw_sent.
  [[nodiscard]] uint32_t PayloadSent(const Frame& frame) const;
  bool CopyOut(Payload* payload);
  void Report(const Message& message, bool flushed);
  void FlushMessages();

  [[nodiscard]] bool IsUnread(const std::byte* at) const { return unread_ != nullptr && unread_->Holds(at); }

  const SendOptions options_;
  const UnreadPayload* unread_ = nullptr;
  GrowingRing<Message> messages_;
  GrowingRing<Payload> payload_;  // of all messages in order, what has not left
  GrowingRing<SendDone> done_;
  Frame partial_;  // the frame that has left in part
  bool has_partial_ = false;
  uint16_t marker_phase_ =
      0;  // clean position, modulo kCleanInterval, behind all complete frames and partial_
  uint32_t next_msn_[kQueueCount] = {1, 1, 1};
  uint64_t unsent_ = 0;
  uint64_t fpdus_ = 0;
  Chunk* copies_ = nullptr;  // what Detach fills; holds a reference
  uint32_t copies_used_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_SEND_QUEUE_H_
