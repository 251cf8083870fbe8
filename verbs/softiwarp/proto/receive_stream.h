// The receiving half of one connection without its socket. ReceiveStream says where the next bytes from TCP
// go, takes them apart, places tagged payload, and reports events. The QueuePair's owner serialises all
// calls.
//
// Chunks: bytes are read into a chunk, and Sends are lent out as pieces of it. Payload is read straight into
// its place if its place is known while the payload is still in TCP. Between reads, a stream without an
// incomplete message holds no chunk.
//
// Looking ahead: one read takes several segments of an RDMA Read Response. Each payload goes to its place if
// the next segments are as long as the one before. If they are not, the bytes read are taken back and parsed
// like any other bytes.
//
// Copying out: small messages among much other data would pin whole chunks. Such a peer's messages are copied
// to memory of their size.
//
// Order of use: PrepareRead, read, HandleRead, then PollEvent until it returns false. PollUsualSend may come
// before each PollEvent.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_RECEIVE_STREAM_H_
#define SDP_VERBS_SOFTIWARP_PROTO_RECEIVE_STREAM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "core/base/types.h"
#include "verbs/softiwarp/proto/fpdu_reader.h"
#include "verbs/softiwarp/proto/message_assembler.h"
#include "verbs/softiwarp/proto/segment_judge.h"

namespace sdp::iwarp {

struct ReceiveOptions {
  bool crc = false;
  bool markers = false;
  bool rtr_send = false;  // the peer's first Send is its RTR
  uint16_t ird = 0;
  // A smaller payload is copied, because a separate target would cost more.
  uint32_t worth_placing = 4096;
};

struct ReceivedMessage {
  AssembledMessage body;  // its references pass to the receiver of the event
  segment::MessageEnd end;
};
struct OutOfMemory {};
// The first one costs nothing to make.
using ReceiveEvent = std::variant<OutOfMemory, ReceivedMessage, segment::ReadWanted, segment::ReadDone,
                                  segment::Terminated, Violation>;

class ReceiveStream {
 public:
  // The most segments after the current one that one read may bring.
  static constexpr size_t kMostAhead = 7;
  static constexpr size_t kMaxTargets = 2 + 2 * kMostAhead;
  // The size of a read into a chunk, where nothing else decides: a message of the usual largest size. Larger
  // reads make fewer calls, but the core's own cache would lose the bytes before the program takes them.
  static constexpr size_t kUsualRead = 64 * 1024;
  // The most memory that may be held while few bytes are lent.
  static constexpr uint64_t kFreeMemory = 2 * kBigChunk;

  ReceiveStream(const ReceiveOptions& options, StagTable& stags, ReceiveBuffers& buffers, ReadQueue& reads);
  ReceiveStream(const ReceiveStream&) = delete;
  ReceiveStream& operator=(const ReceiveStream&) = delete;

  // Returns where the next bytes of the stream go (clean of markers), valid until HandleRead. Returns an
  // empty span if memory is lacking.
  std::span<const MutableBytes> PrepareRead();
  // Takes `clean` bytes that were read into the targets, and gives the targets up.
  void HandleRead(size_t clean);
  // Takes the next message if it is a usual Send (SegmentJudge::IsUsualSend) whose FPDU has come as one
  // piece. This is most of what comes. Returns false otherwise: PollEvent says what comes next.
  bool PollUsualSend(ReceivedMessage* out);
  // Returns false when all bytes are used up. An error (Violation, Terminated, OutOfMemory) is the last
  // event.
  bool PollEvent(ReceiveEvent* out);
  // For an owner who can look at the link's bytes before it reads them. Such an owner may take a usual Send
  // off the link itself, and then calls TakeUsualSend().
  struct UsualSend {
    uint32_t fpdu = 0;    // bytes on the link
    uint32_t length = 0;  // of the message, which follows kUsualPrefix bytes
    bool solicited = false;
  };
  static constexpr size_t kUsualPrefix = kMpaLengthSize + kUntaggedHeaderSize;
  // Returns the usual Send that begins with the kUsualPrefix bytes at `first`, if `there` bytes have it
  // whole. `ahead`: so many messages are before it.
  [[nodiscard]] std::optional<UsualSend> FindUsualSend(const std::byte* first, uint64_t there,
                                                       uint32_t ahead) const;
  // Returns true if the link's next bytes begin a segment, and no check of them needs a read.
  [[nodiscard]] bool between_segments() const {
    return !reading_ && read_left_ == 0 && unparsed_.empty() && ready_for_usual();
  }
  void TakeUsualSend() {
    judge_.TakeUsualSend();
    ++fpdus_;
  }
  // Ends the owner's reading call, which has read `total` bytes. Frees a chunk that is not needed, and
  // decides the size of the next one.
  void FinishReading(size_t total);
  // Takes back a piece of a lent message.
  void Release(const Piece& piece);

  // Gives the memory behind `stag` back to the caller. Payload still to be placed there is dropped, and
  // answered as a violation.
  void HandleDeregister(STag stag);
  // Notes that the region has moved from `from` to `to`; placing continues at `to`.
  void HandleMove(STag stag, const std::byte* from, std::byte* to);
  void HandleReadResponseSent() { judge_.HandleReadResponseSent(); }

  [[nodiscard]] const ReceiveOptions& options() const { return options_; }
  [[nodiscard]] MarkerSieve* sieve() { return sieve_.get(); }
  [[nodiscard]] bool at_boundary() const { return reader_.at_boundary() && judge_.message_offset() == 0; }
  [[nodiscard]] uint64_t fpdus() const { return fpdus_; }
  [[nodiscard]] uint64_t placed() const { return placed_; }
  // Returns the memory in use, including lent messages. Whatever the peer sends, it is at most kFreeMemory,
  // plus three times the most bytes ever lent at once, plus the needs of one read and one incomplete message.
  [[nodiscard]] uint64_t memory() const { return chunks_.bytes(); }

 private:
  friend struct Frozen;
  [[nodiscard]] bool ready_for_usual() const {
    return !options_.crc && sieve_ == nullptr && !failed_ && at_boundary() && message_.pieces() == 0;
  }
  [[nodiscard]] bool crowded() const { return chunks_.bytes() > kFreeMemory + 3 * lent_; }
  [[nodiscard]] MutableBytes DirectTarget();
  // Returns where the next payload byte goes; nullptr if it goes to a chunk.
  [[nodiscard]] std::byte* NextPlace();
  // Adds targets for the payload of the segments after the current one, whose own payload ends at `place`.
  // Returns false if more of the message may follow.
  bool LookAhead(std::byte* place);
  // Returns the size of the last target. `message_over`: it expects no more of the current message.
  [[nodiscard]] size_t ChunkBytesWanted(bool message_over) const;
  bool EnsureChunk(size_t wanted);
  void DropChunk();
  // Continues with the next target that was read into: places its bytes, or makes them unparsed_.
  std::optional<ReceiveEvent> TakePart();
  // Handles segments that did not come as expected: makes the rest of the bytes read unparsed_.
  std::optional<ReceiveEvent> TakeBack();

  std::optional<ReceiveEvent> BeginSegment();
  std::optional<ReceiveEvent> ConsumePayload(Bytes payload);
  std::optional<ReceiveEvent> EndSegment();
  ReceiveEvent Deliver(const segment::MessageEnd& end);
  std::optional<ReceiveEvent> Report(Violation violation);
  void PlaceHeld();
  void DropHeld();

  const ReceiveOptions options_;
  ReceiveBuffers& buffers_;
  SegmentJudge judge_;
  std::unique_ptr<MarkerSieve> sieve_;  // only with markers
  FpduReader reader_;
  ChunkSet chunks_;
  MessageAssembler message_;

  Chunk* chunk_ = nullptr;  // the chunk of the current read; holds a reference
  uint32_t fill_ = 0;
  bool reading_ = false;  // between PrepareRead and HandleRead
  bool bulk_ = false;     // the last reading call brought many bytes
  MutableBytes only_target_;
  std::unique_ptr<std::array<MutableBytes, kMaxTargets>> many_targets_;  // made when first needed
  MutableBytes* targets_ = &only_target_;                                // of the last read
  size_t target_count_ = 0;
  bool direct_ = false;     // every other target, from the first on, is not in the chunk
  size_t next_target_ = 0;  // among the targets that were read into
  size_t read_left_ = 0;    // bytes in them that were not handed on yet
  Bytes unparsed_{};        // in chunk_

  // The current segment.
  struct Segment {
    DdpHeader header;
    Placement placement;
    std::byte* place = nullptr;          // kPlace: where the next payload byte goes
    bool dropping = false;               // its payload is no longer wanted
    std::unique_ptr<Violation> verdict;  // found before the FPDU was known to be valid
    uint32_t limit = 0;                  // bytes of the message
  };
  Segment segment_;
  std::vector<Piece> held_;  // with CRC: tagged payload that waits for the check
  std::array<std::byte, kMaxTerminateSize> body_{};
  size_t body_size_ = 0;

  bool failed_ = false;
  uint64_t fpdus_ = 0;
  uint64_t placed_ = 0;
  uint64_t lent_ = 0;  // bytes of lent messages
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_RECEIVE_STREAM_H_
