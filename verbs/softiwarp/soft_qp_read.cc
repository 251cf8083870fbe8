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

ReadStatus SoftQp::ReadLink() { return ReadUpTo(local_ ? kMostOfRing : kMostRead); }

ReadStatus SoftQp::ReadSome() { return ReadUpTo(kSomeRead); }

ReadStatus SoftQp::ReadUpTo(size_t enough) {
  size_t total = 0;
  ReadStatus status = ReadStatus::kWouldBlock;
  const auto untold = [&] { return local_ && !polling_ && local_->untold() && total < enough + kMostUntold; };
  while ((total < enough || untold()) && ReadOnce(&total, &status)) {
  }
  return FinishRead(total, status);
}

ReadStatus SoftQp::PollLink(PollFor wanted) {
  const auto look = wanted == PollFor::kSleep ? LocalLink::Look::kRing : LocalLink::Look::kPoll;
  if (!read_ended_ && send_queue_.empty() && !link_full_ && !local_->WorthRead(link_, look))
    return ReadStatus::kWouldBlock;
  polling_ = wanted;
  const ReadStatus status = ReadSome();
  polling_.reset();
  return status;
}

bool SoftQp::may_sleep() {
  return !read_ended_ && ready_.empty() && local_->MaySleep() &&
         (link_full_ ? !local_->has_room() : send_queue_.empty() || !may_send());
}

LinkResult SoftQp::Read(std::span<const MutableBytes> parts, bool came) {
  if (!local_) return link_.Read(parts);
  found_.still_next = false;
  using Look = LocalLink::Look;
  const Look look = polling_ == PollFor::kSleep ? Look::kRing
                    : polling_                  ? Look::kPoll
                    : came                      ? Look::kGoOn
                                                : Look::kDrain;
  return local_->Read(link_, parts, look);
}

std::optional<verbs::Direct::Arrived> SoftQp::LookDirect(MutableBytes header, const Arrived* before) {
  if (read_ended_ || !ready_.empty() || !send_queue_.empty() || !stream_.between_segments())
    return std::nullopt;
  if (before == nullptr && found_.still_next && found_.message.length >= header.size()) {
    std::copy_n(found_.header.begin(), header.size(), header.begin());
    return found_.message;
  }
  const RingReader::Unread there = local_->LookAtRing();
  const uint64_t from = before != nullptr ? before->end : 0;
  const uint32_t ahead = before != nullptr ? before->untaken : 0;
  std::array<std::byte, ReceiveStream::kUsualPrefix + kMostHeader> first{};
  if (there.size < from + ReceiveStream::kUsualPrefix) return std::nullopt;
  local_->CopyFromRing(there, from, first);
  const auto usual = stream_.FindUsualSend(first.data(), there.size - from, ahead);
  if (!usual || usual->length < header.size()) return std::nullopt;
  std::copy_n(first.begin() + ReceiveStream::kUsualPrefix, header.size(), header.begin());
  const Arrived message = {.length = usual->length,
                           .solicited = usual->solicited,
                           .end = from + usual->fpdu,
                           .untaken = ahead + 1};
  if (before == nullptr) {
    found_.there = there;
    found_.message = message;
    std::copy_n(first.begin() + ReceiveStream::kUsualPrefix, kMostHeader, found_.header.begin());
    found_.still_next = true;
  }
  return message;
}

void SoftQp::TakeDirect(size_t header, std::span<const MutableBytes> payload) {
  uint64_t from = ReceiveStream::kUsualPrefix + header;
  for (const MutableBytes& piece : payload) {
    local_->CopyFromRing(found_.there, from, piece);
    from += piece.size();
  }
  local_->TakeFromRing(link_, found_.there, found_.message.end);
  NoteDirect();
}

std::array<Bytes, 2> SoftQp::LendDirect(size_t header) {
  NoteDirect();
  const uint64_t from = ReceiveStream::kUsualPrefix + header;
  return local_->FindInRing(found_.there, from, found_.message.length - header);
}

void SoftQp::ReturnLent() { local_->TakeFromRing(link_, found_.there, found_.message.end); }

void SoftQp::NoteDirect() {
  found_.still_next = false;
  stream_.TakeUsualSend();
  placed_then_ = stream_.placed();
  ++counters_.read_calls;
  counters_.bytes_in += found_.message.end;
}

// The sender's buffer may have no more room. A kernel that has recently sent an answer would delay the
// acknowledgement by 40 ms, to send it along with the next answer.
void SoftQp::NoteSleep() const {
  if (!local_ && midway()) link_.AcknowledgeAtOnce();
}

void SoftQp::HandleEarly(Bytes bytes) {
  const size_t total = bytes.size();
  while (!bytes.empty() && !read_ended_) {
    const std::span<const MutableBytes> parts = stream_.PrepareRead();
    if (parts.empty()) return FailLocally("no memory to receive into");
    size_t taken = 0;
    for (const MutableBytes& part : parts) {
      const size_t piece = std::min(part.size(), bytes.size());
      std::memcpy(part.data(), bytes.data(), piece);
      bytes = bytes.subspan(piece);
      taken += piece;
    }
    stream_.HandleRead(taken);
    counters_.bytes_in += taken;
    HandleEvents();
  }
  (void)FinishRead(total, ReadStatus::kProgress);
}

bool SoftQp::ReadOnce(size_t* total, ReadStatus* status) {
  if (read_ended_) return false;
  std::span<const MutableBytes> parts = stream_.PrepareRead();
  if (parts.empty()) {
    FailLocally("no memory to receive into");
    return false;
  }
  std::vector<MutableBytes> split;  // markers are rare
  if (MarkerSieve* sieve = stream_.sieve()) {
    split.resize(MarkerSieve::kMaxParts);
    parts = std::span(split).first(sieve->Split(parts, split));
  }
  size_t asked = 0;
  for (const MutableBytes& part : parts) asked += part.size();

  const LinkResult read = Read(parts, *total > 0);
  ++counters_.read_calls;
  size_t clean = read.bytes;
  if (MarkerSieve* sieve = stream_.sieve()) clean = sieve->HandleRead(read.bytes);
  stream_.HandleRead(clean);

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
      if (local_ && read.error == EPROTO) return FailByMemory(), false;
      EndReading(LinkEnd::kReset, std::string("connection lost: ") + strerrordesc_np(read.error), read.error);
      StopSending();
      return false;
  }
  counters_.bytes_in += read.bytes;
  *total += read.bytes;
  HandleEvents();
  // Fewer bytes than asked for: the link is drained, and no further call is needed, except for a doorbell.
  return !read_ended_ && (read.bytes == asked || (local_ && !polling_));
}

ReadStatus SoftQp::FinishRead(size_t total, ReadStatus status) {
  stream_.FinishReading(total);
  // The queue may have Read Responses, waiting Reads, a Terminate, or work that waited for the initiator's
  // FPDU.
  if (TakeRoom() && status == ReadStatus::kWouldBlock) status = ReadStatus::kProgress;
  if (!send_queue_.empty() && (!link_full_ || (local_ && local_->has_room()))) {
    const uint64_t before = counters_.bytes_out;
    Flush();
    // A caller that waits for room on a local link has it now.
    if (local_ && counters_.bytes_out != before && status == ReadStatus::kWouldBlock)
      status = ReadStatus::kProgress;
  }
  if (read_ended_) return ReadStatus::kEnded;
  return total > 0 ? ReadStatus::kProgress : status;
}

void SoftQp::HandleEvents() {
  ReceivedMessage usual;
  ReceiveEvent event;
  for (;;) {
    while (stream_.PollUsualSend(&usual)) Handle(usual);
    if (!stream_.PollEvent(&event)) return;
    std::visit([this](auto& e) { Handle(e); }, event);
    if (read_ended_) return;
  }
}

void SoftQp::Handle(ReceivedMessage& message) {
  placed_then_ = stream_.placed();
  ready_.PushMessage(message);
  if (message.end.invalidate) {
    bool failed = false;
    counters_.copied_out += send_queue_.DetachSource(*message.end.invalidate, &failed);
    if (failed) FailLocally("no memory to complete an RDMA Read Response");
  }
}

void SoftQp::Handle(const segment::ReadWanted& wanted) {
  if (send_broken_ || ending_ != Ending::kNo) return;
  const ReadRequest& r = wanted.request;
  const Bytes source(wanted.source, r.size);
  send_queue_.Post({.opcode = RdmapOpcode::kReadResponse,
                    .stag = r.sink_stag,
                    .to = r.sink_to,
                    .payload = std::span(&source, r.size > 0 ? 1 : 0),
                    .source = r.source_stag});
  if (!crc_ || r.size == 0) return;
  // The memory may change until it is sent, but the CRC must not.
  bool failed = false;
  counters_.copied_out += send_queue_.DetachSource(r.source_stag, &failed);
  if (failed) FailLocally("no memory for an RDMA Read Response");
}

void SoftQp::Handle(const segment::ReadDone& done) {
  placed_then_ = stream_.placed();
  if (!done.silent) ready_.PushWork(done.id, Opcode::kRdmaRead, Status::kSuccess, done.length);
  StartReads();
}

void SoftQp::Handle(const segment::Terminated& terminated) {
  if (!terminated.message) {
    EndReading(LinkEnd::kTerminated, "the peer sent a malformed Terminate");
  } else {
    const TerminateCause& c = terminated.message->cause;
    PendingRead read;
    // RFC 5040, figure 10: a Terminate with a request's header names one of our Reads. The peer answers Reads
    // in order, so the oldest one is meant.
    if (terminated.message->read_request && reads_.TakeAny(&read) && !read.silent) {
      ready_.PushWork(read.id, Opcode::kRdmaRead, Status::kRemoteError);
    }
    EndReading(LinkEnd::kTerminated,
               std::string("the peer sent Terminate: ") + LayerName(c.layer) + ", " + CauseName(c));
    cause_.layer = c.layer;
    cause_.etype = c.etype;
    cause_.ecode = c.ecode;
  }
  StopSending();
  link_.ShutdownWrite();
}

void SoftQp::Handle(const Violation& violation) {
  TerminateBytes bytes;
  const size_t size = SerializeTerminate(violation.answer, bytes);
  const TerminateCause& c = violation.answer.cause;
  EndReading(LinkEnd::kTerminated, violation.text + " (the peer's error); Terminate sent");
  cause_.local = true;
  cause_.layer = c.layer;
  cause_.etype = c.etype;
  cause_.ecode = c.ecode;
  if (send_broken_ || ending_ == Ending::kFinSent) return;
  send_broken_ = true;
  send_open_ = true;
  send_queue_.Terminate(Bytes(bytes).first(size));
  ending_ = Ending::kFinWanted;
  CollectSends();
}

void SoftQp::Handle(const OutOfMemory&) { FailLocally("no memory to receive into"); }

void SoftQp::TerminateStream(const TerminateCause& cause, std::string text) {
  Violation violation;
  violation.answer.cause = cause;
  violation.text = std::move(text);
  Handle(violation);
  Flush();
}

void SoftQp::LoseLink(const char* text) {
  EndReading(LinkEnd::kReset, text);
  StopSending();
  if (local_) local_->Leave();
  link_.Abort();
}

void SoftQp::HandleEof() {
  if (!stream_.at_boundary()) {
    LoseLink("the peer closed the connection in the middle of a message");
  } else if (reads_.in_flight() > 0) {
    LoseLink("the peer closed the connection with RDMA Reads unanswered");
  } else if (send_broken_ || (!local_ && ending_ == Ending::kNo && link_.Over())) {
    // recv does not tell of a reset behind the peer's FIN.
    EndReading(LinkEnd::kReset, "the peer closed the connection before it took everything", ECONNRESET);
  } else {
    EndReading(LinkEnd::kClosedByPeer, "closed by the peer");
  }
}

}  // namespace sdp::iwarp
