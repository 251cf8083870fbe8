// The QueuePair's reading half: one read of the link, and the handling of everything that came in.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "verbs/softiwarp/soft_qp.h"

namespace sdp::iwarp {
namespace {

using verbs::LinkEnd;
using verbs::Opcode;
using verbs::ReadStatus;
using verbs::Status;

// ReadLink returns after so many bytes of a TCP link.
constexpr size_t kMostRead = 512 * 1024;
// ReadLink returns after so many bytes of a local link. It empties a full ring and arms the doorbell.
constexpr size_t kMostOfRing = 2 * LocalMemory::kRingSize;
// All other reads return after so many bytes.
constexpr size_t kSomeRead = 32 * 1024;
// No doorbell tells of up to so many bytes in an honest peer's ring: the ring, and one read.
constexpr size_t kMostUntold = LocalMemory::kRingSize + 64 * 1024;

}  // namespace

// Reads the link, and handles what comes.
class SoftQp::Incoming {
 public:
  explicit Incoming(SoftQp& qp) : q_(qp) {}

  // Reads what is there, until `enough` bytes have come.
  ReadStatus ReadUpTo(size_t enough);
  void HandleEarly(Bytes bytes);
  void Handle(const Violation& violation);

 private:
  // Reads the link once and handles what came. Returns true if there may be more to read.
  bool ReadOnce(size_t* total, ReadStatus* status);
  ReadStatus FinishRead(size_t total, ReadStatus status);
  void HandleEvents();
  void Handle(ReceivedMessage& message);
  void Handle(const segment::ReadWanted& wanted);
  void Handle(const segment::ReadDone& done);
  void Handle(const segment::Terminated& terminated);
  void Handle(const OutOfMemory&);
  void HandleEof();
  // Ends a stream that the peer has ended too early: nothing more can be sent on it.
  void LoseLink(const char* text);

  SoftQp& q_;
};

ReadStatus SoftQp::Incoming::ReadUpTo(size_t enough) {
  size_t total = 0;
  ReadStatus status = ReadStatus::kWouldBlock;
  const auto untold = [&] {
    return q_.local_ && !q_.local_->polling() && q_.local_->link().untold() && total < enough + kMostUntold;
  };
  while ((total < enough || untold()) && ReadOnce(&total, &status)) {
  }
  return FinishRead(total, status);
}

void SoftQp::Incoming::HandleEarly(Bytes bytes) {
  const size_t total = bytes.size();
  while (!bytes.empty() && !q_.read_ended_) {
    const std::span<const MutableBytes> parts = q_.stream_.PrepareRead();
    if (parts.empty()) return q_.FailLocally("no memory to receive into");
    size_t taken = 0;
    for (const MutableBytes& part : parts) {
      const size_t piece = std::min(part.size(), bytes.size());
      std::memcpy(part.data(), bytes.data(), piece);
      bytes = bytes.subspan(piece);
      taken += piece;
    }
    q_.stream_.HandleRead(taken);
    q_.counters_.bytes_in += taken;
    HandleEvents();
  }
  (void)FinishRead(total, ReadStatus::kProgress);
}

bool SoftQp::Incoming::ReadOnce(size_t* total, ReadStatus* status) {
  if (q_.read_ended_) return false;
  std::span<const MutableBytes> parts = q_.stream_.PrepareRead();
  if (parts.empty()) {
    q_.FailLocally("no memory to receive into");
    return false;
  }
  std::vector<MutableBytes> split;  // markers are rare
  if (MarkerSieve* sieve = q_.stream_.sieve()) {
    split.resize(MarkerSieve::kMaxParts);
    parts = std::span(split).first(sieve->Split(parts, split));
  }
  size_t asked = 0;
  for (const MutableBytes& part : parts) asked += part.size();

  const LinkResult read = q_.local_ ? q_.local_->Read(parts, *total > 0) : q_.link_.Read(parts);
  ++q_.counters_.read_calls;
  size_t clean = read.bytes;
  if (MarkerSieve* sieve = q_.stream_.sieve()) clean = sieve->HandleRead(read.bytes);
  q_.stream_.HandleRead(clean);

  switch (read.kind) {
    case LinkResult::Kind::kOk:
      break;
    case LinkResult::Kind::kWouldBlock:
      *status = ReadStatus::kWouldBlock;
      return false;
    case LinkResult::Kind::kEof:
      HandleEof();
      return false;
    case LinkResult::Kind::kError:
      if (q_.local_ && read.error == EPROTO) return q_.FailLocally(SoftQp::kBadMemory), false;
      q_.EndReading(LinkEnd::kReset, std::string("connection lost: ") + strerrordesc_np(read.error),
                    read.error);
      q_.StopSending();
      return false;
  }
  q_.counters_.bytes_in += read.bytes;
  *total += read.bytes;
  HandleEvents();
  // Fewer bytes than asked for: the link is drained, and no further call is needed, except for a doorbell.
  return !q_.read_ended_ && (read.bytes == asked || (q_.local_ && !q_.local_->polling()));
}

ReadStatus SoftQp::Incoming::FinishRead(size_t total, ReadStatus status) {
  q_.stream_.FinishReading(total);
  // The queue may have Read Responses, waiting Reads, a Terminate, or work that waited for the initiator's
  // FPDU.
  if (q_.files_.TakeRoom() && status == ReadStatus::kWouldBlock) status = ReadStatus::kProgress;
  if (!q_.send_queue_.empty() && (!q_.link_full_ || q_.files_.HasRoomAgain())) {
    const uint64_t before = q_.counters_.bytes_out;
    q_.Flush();
    // A caller that waits for room on a local link has it now.
    if (q_.local_ && q_.counters_.bytes_out != before && status == ReadStatus::kWouldBlock)
      status = ReadStatus::kProgress;
  }
  if (q_.read_ended_) return ReadStatus::kEnded;
  return total > 0 ? ReadStatus::kProgress : status;
}

void SoftQp::Incoming::HandleEvents() {
  ReceivedMessage usual;
  ReceiveEvent event;
  for (;;) {
    while (q_.stream_.PollUsualSend(&usual)) Handle(usual);
    if (!q_.stream_.PollEvent(&event)) return;
    std::visit([this](auto& e) { Handle(e); }, event);
    if (q_.read_ended_) return;
  }
}

void SoftQp::Incoming::Handle(ReceivedMessage& message) {
  q_.placed_then_ = q_.stream_.placed();
  q_.ready_.PushMessage(message);
  if (message.end.invalidate) {
    bool failed = false;
    q_.counters_.copied_out += q_.send_queue_.DetachSource(*message.end.invalidate, &failed);
    if (failed) q_.FailLocally("no memory to complete an RDMA Read Response");
  }
}

void SoftQp::Incoming::Handle(const segment::ReadWanted& wanted) {
  if (!q_.may_post()) return;
  const ReadRequest& r = wanted.request;
  const Bytes source(wanted.source, r.size);
  q_.send_queue_.Post({.opcode = RdmapOpcode::kReadResponse,
                       .stag = r.sink_stag,
                       .to = r.sink_to,
                       .payload = std::span(&source, r.size > 0 ? 1 : 0),
                       .source = r.source_stag});
  if (!q_.crc_ || r.size == 0) return;
  // The memory may change until it is sent, but the CRC must not.
  bool failed = false;
  q_.counters_.copied_out += q_.send_queue_.DetachSource(r.source_stag, &failed);
  if (failed) q_.FailLocally("no memory for an RDMA Read Response");
}

void SoftQp::Incoming::Handle(const segment::ReadDone& done) {
  q_.placed_then_ = q_.stream_.placed();
  if (!done.silent) q_.ready_.PushWork(done.id, Opcode::kRdmaRead, Status::kSuccess, done.length);
  q_.StartReads();
}

void SoftQp::Incoming::Handle(const segment::Terminated& terminated) {
  if (!terminated.message) {
    q_.EndReading(LinkEnd::kTerminated, "the peer sent a malformed Terminate");
  } else {
    const TerminateCause& c = terminated.message->cause;
    PendingRead read;
    // RFC 5040, figure 10: a Terminate with a request's header names one of our Reads. The peer answers Reads
    // in order, so the oldest one is meant.
    if (terminated.message->read_request && q_.reads_.TakeAny(&read) && !read.silent) {
      q_.ready_.PushWork(read.id, Opcode::kRdmaRead, Status::kRemoteError);
    }
    q_.EndReading(LinkEnd::kTerminated,
                  std::string("the peer sent Terminate: ") + LayerName(c.layer) + ", " + CauseName(c));
    q_.facts_.cause.layer = c.layer;
    q_.facts_.cause.etype = c.etype;
    q_.facts_.cause.ecode = c.ecode;
  }
  q_.StopSending();
  q_.link_.ShutdownWrite();
}

void SoftQp::Incoming::Handle(const Violation& violation) {
  TerminateBytes bytes;
  const size_t size = SerializeTerminate(violation.answer, bytes);
  const TerminateCause& c = violation.answer.cause;
  q_.EndReading(LinkEnd::kTerminated, violation.text + " (the peer's error); Terminate sent");
  q_.facts_.cause.local = true;
  q_.facts_.cause.layer = c.layer;
  q_.facts_.cause.etype = c.etype;
  q_.facts_.cause.ecode = c.ecode;
  if (q_.facts_.send_failed || q_.ending_ == Ending::kFinSent) return;
  q_.facts_.send_failed = true;
  q_.send_open_ = true;
  q_.send_queue_.Terminate(Bytes(bytes).first(size));
  q_.ending_ = Ending::kFinWanted;
  q_.CollectSends();
}

void SoftQp::Incoming::Handle(const OutOfMemory&) { q_.FailLocally("no memory to receive into"); }

void SoftQp::Incoming::LoseLink(const char* text) {
  q_.EndReading(LinkEnd::kReset, text);
  q_.StopSending();
  q_.ResetLink();
}

void SoftQp::Incoming::HandleEof() {
  if (!q_.stream_.at_boundary()) {
    LoseLink("the peer closed the connection in the middle of a message");
  } else if (q_.reads_.in_flight() > 0) {
    LoseLink("the peer closed the connection with RDMA Reads unanswered");
  } else if (q_.facts_.send_failed || (!q_.local_ && q_.ending_ == Ending::kNo && q_.link_.Over())) {
    // recv does not tell of a reset behind the peer's FIN.
    q_.EndReading(LinkEnd::kReset, "the peer closed the connection before it took everything", ECONNRESET);
  } else {
    q_.EndReading(LinkEnd::kClosedByPeer, "closed by the peer");
  }
}

ReadStatus SoftQp::ReadLink() { return Incoming(*this).ReadUpTo(local_ ? kMostOfRing : kMostRead); }

ReadStatus SoftQp::ReadSome() { return Incoming(*this).ReadUpTo(kSomeRead); }

void SoftQp::HandleEarly(Bytes bytes) { Incoming(*this).HandleEarly(bytes); }

void SoftQp::TerminateStream(const TerminateCause& cause, std::string text) {
  Violation violation;
  violation.answer.cause = cause;
  violation.text = std::move(text);
  Incoming(*this).Handle(violation);
  Flush();
}

// The sender may have no more room in the middle of a message, or behind an RDMA Write that no message has
// reported yet. A kernel that has recently sent an answer would delay the acknowledgement by 40 ms, to send
// it along with the next answer.
void SoftQp::NoteSleep() const {
  const bool midway = !stream_.at_boundary() || stream_.placed() != placed_then_;
  if (!local_ && midway) link_.AcknowledgeAtOnce();
}

}  // namespace sdp::iwarp
