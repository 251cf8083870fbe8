#include "verbs/softiwarp/soft_qp.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "verbs/softiwarp/local/random.h"

namespace sdp::iwarp {
namespace {

using verbs::LinkEnd;
using verbs::Opcode;
using verbs::PostResult;
using verbs::Status;

static_assert(verbs::kMaxSendHeader == kMaxUlpHeader);

// The queue limit. No upper layer with flow control reaches it; PostSend returns kNoResource to others.
constexpr size_t kMaxQueuedSends = 4096;
constexpr size_t kMaxQueuedReads = 1024;
// STag of the zero-length messages that open a peer-to-peer connection. Receivers do not check it, but some
// peers treat 0 specially.
constexpr STag kRtrStag{1};
constexpr uint32_t kFramingCost = kMpaLengthSize + kUntaggedHeaderSize + kCrcSize;

Opcode WorkOpcode(RdmapOpcode opcode) {
  return opcode == RdmapOpcode::kWrite ? Opcode::kRdmaWrite : Opcode::kSend;
}

}  // namespace

SoftQp::SoftQp(int fd, const MpaAgreement& agreement, const verbs::QpOptions& options, uint32_t max_ulpdu,
               std::shared_ptr<LocalMemory> memory, std::string why_not_local)
    : QueuePair(facts_),
      facts_{.rnic = "soft",
             .link = memory != nullptr ? "local" : "tcp",
             .why_not_local = std::move(why_not_local),
             .ird = agreement.ird,
             .ord = agreement.ord},
      link_(fd),
      send_open_(agreement.role == MpaRole::kInitiator || agreement.open),
      crc_(agreement.crc),
      stags_(FillRandom),
      buffers_(options.receive_buffer_size),
      stream_({.crc = agreement.crc,
               .markers = agreement.receive_markers,
               .rtr_send = agreement.role == MpaRole::kResponder && agreement.rtr == Rtr::kSend,
               .ird = agreement.ird},
              stags_, buffers_, reads_),
      send_queue_({.crc = agreement.crc, .markers = agreement.send_markers, .max_ulpdu = max_ulpdu}) {
  if (memory != nullptr) {
    local_ = std::make_unique<LocalAbilities>(
        *this, std::move(memory),
        agreement.role == MpaRole::kInitiator ? LocalEnd::kConnecting : LocalEnd::kAccepting);
  }
  LocalAbilities* const local = local_.get();
  SetAbilities({.portable = &portable_,
                .file_source = &files_,
                .movable_regions = this,
                .pollable = local,
                .direct_send = local != nullptr ? static_cast<verbs::DirectSend*>(local) : &direct_send_,
                .direct = local});
  buffers_.Post(options.initial_receives);
  if (agreement.role == MpaRole::kInitiator) PostRtr(agreement.rtr);
}

void SoftQp::PostRtr(Rtr kind) {
  if (kind == Rtr::kWrite)
    send_queue_.Post({.silent = true, .opcode = RdmapOpcode::kWrite, .stag = kRtrStag});
  if (kind == Rtr::kRead) {
    reads_.Post({.id = {}, .request = {.sink_stag = kRtrStag, .source_stag = kRtrStag}, .silent = true});
    StartReads();
  }
}

// ----------------------------------------------------------------------------------------------------
// Posting

PostResult SoftQp::PostSend(const verbs::SendWork& work) {
  if (!may_post()) return PostResult::kBroken;
  if (send_queue_.size() >= kMaxQueuedSends) return PostResult::kNoResource;
  if (work.header.size() > verbs::kMaxSendHeader ||
      TotalSize(work.payload) > UINT32_MAX - verbs::kMaxSendHeader) {
    ready_.PushWork(work.id, Opcode::kSend, Status::kLocalError);
    return PostResult::kOk;
  }
  send_queue_.Post({.id = work.id,
                    .signaled = work.signaled,
                    .opcode = SendOpcode(work.solicited, work.invalidate.has_value()),
                    .stag = work.invalidate.value_or(STag()),
                    .header = work.header,
                    .payload = work.payload});
  return PostResult::kOk;
}

PostResult SoftQp::PostRdmaWrite(const verbs::RdmaWriteWork& work) {
  if (!may_post()) return PostResult::kBroken;
  if (send_queue_.size() >= kMaxQueuedSends) return PostResult::kNoResource;
  if (TotalSize(work.local) > UINT32_MAX) {
    ready_.PushWork(work.id, Opcode::kRdmaWrite, Status::kLocalError);
    return PostResult::kOk;
  }
  send_queue_.Post({.id = work.id,
                    .signaled = work.signaled,
                    .opcode = RdmapOpcode::kWrite,
                    .stag = work.remote_stag,
                    .to = work.remote_to,
                    .payload = work.local,
                    // The memory may change until it is sent, but the CRC must not.
                    .source = crc_ ? STag() : work.local_stag.value_or(STag())});
  return PostResult::kOk;
}

PostResult SoftQp::PostRdmaRead(const verbs::RdmaReadWork& work) {
  if (!may_post() || read_ended_) return PostResult::kBroken;
  if (reads_.size() >= kMaxQueuedReads) return PostResult::kNoResource;
  // ORD 0 means that the peer takes no Reads, so this one would wait for ever.
  if (facts_.ord == 0 ||
      (work.length > 0 && !stags_.Access(work.local_stag, work.local_to, work.length, Rights::kLocal))) {
    ready_.PushWork(work.id, Opcode::kRdmaRead, Status::kLocalError);
    return PostResult::kOk;
  }
  reads_.Post({.id = work.id,
               .request = {.sink_stag = work.local_stag,
                           .sink_to = work.local_to,
                           .size = work.length,
                           .source_stag = work.remote_stag,
                           .source_to = work.remote_to}});
  StartReads();
  return PostResult::kOk;
}

void SoftQp::StartReads() {
  while (const PendingRead* read = reads_.StartNext(facts_.ord)) {
    std::array<std::byte, kReadRequestSize> header;
    SerializeReadRequest(read->request, header);
    send_queue_.Post({.silent = true, .opcode = RdmapOpcode::kReadRequest, .header = header});
  }
}

void SoftQp::SetOrd(uint16_t ord) { facts_.ord = std::min(facts_.ord, ord); }

// ----------------------------------------------------------------------------------------------------
// Memory

std::optional<verbs::MemoryRegion> SoftQp::Register(MutableBytes memory, verbs::Access access) {
  const auto stag = stags_.Register(memory, static_cast<Rights>(access));
  if (!stag) return std::nullopt;
  return verbs::MemoryRegion{.stag = *stag,
                             .base_to = reinterpret_cast<uint64_t>(memory.data()),
                             .length = static_cast<uint32_t>(memory.size())};
}

bool SoftQp::MoveRegion(STag stag, MutableBytes memory) {
  const auto from = stags_.Move(stag, memory);
  if (!from) return false;
  stream_.HandleMove(stag, *from, memory.data());
  DetachSource(stag);
  return true;
}

// The owner may reuse the memory afterwards, so nothing may touch it any more.
void SoftQp::Deregister(STag stag) {
  if (!stags_.Deregister(stag)) return;
  stream_.HandleDeregister(stag);
  DetachSource(stag);
}

void SoftQp::DetachSource(STag stag) {
  bool failed = false;
  counters_.copied_out += send_queue_.DetachSource(stag, &failed);
  if (failed) FailLocally("no memory to complete an RDMA Read Response");
}

uint32_t SoftQp::ReceiveCost(uint32_t length) const { return length + kFramingCost; }

// ----------------------------------------------------------------------------------------------------
// Sending

LinkResult SoftQp::Write(std::span<const iovec> parts) {
  if (local_) return local_->link().Write(link_, parts, files_.file());
  // A FIN goes along with what is before it.
  return files_.file() ? files_.file()->Write(link_, parts)
                       : link_.Write(parts, /*more=*/ending_ == Ending::kFinWanted);
}

bool SoftQp::Flush() {
  if (send_queue_.empty()) return true;
  if (!may_send()) return false;
  files_.ForgetRoom();
  const uint64_t sent_before = counters_.bytes_out;
  while (!send_queue_.empty()) {
    SendBatch batch;
    send_queue_.BuildBatch(&batch);
    const LinkResult sent = Write(batch.parts());
    ++counters_.write_calls;
    if (sent.kind == LinkResult::Kind::kWouldBlock) {
      link_full_ = true;
      break;
    }
    if (sent.kind == LinkResult::Kind::kEof) {
      FailLocally("a file that was being sent became shorter, or could not be read");
      return true;
    }
    if (local_ && sent.error == EPROTO) {
      FailLocally(kBadMemory);
      return true;
    }
    if (sent.error == EFAULT) {
      FailLocally("memory that was being sent is gone");
      return true;
    }
    if (sent.kind != LinkResult::Kind::kOk) {
      // What the peer said before it went away may still be unread. The reader finds it, and names the cause.
      facts_.failed_midway = counters_.bytes_out != sent_before;
      StopSending();
      return true;
    }
    counters_.bytes_out += sent.bytes;
    send_queue_.HandleSent(batch, sent.bytes);
    if (sent.bytes < batch.size()) {
      if (files_.HasRoomAgain()) continue;
      link_full_ = true;
      break;
    }
  }
  CollectSends();
  if (!send_queue_.empty()) return false;
  if (ending_ == Ending::kFinWanted) {
    ending_ = Ending::kFinSent;
    link_.ShutdownWrite();
  }
  return true;
}

void SoftQp::CollectSends() {
  SendDone done;
  while (send_queue_.PollDone(&done)) {
    switch (done.opcode) {
      case RdmapOpcode::kReadResponse:
        stream_.HandleReadResponseSent();
        break;
      default:
        ready_.PushWork(done.id, WorkOpcode(done.opcode), done.flushed ? Status::kFlushed : Status::kSuccess);
    }
  }
}

void SoftQp::DetachBorrowed() {
  bool failed = false;
  counters_.copied_out += send_queue_.Detach(&failed);
  if (failed)
    FailLocally(files_.file() != nullptr ? "no memory to keep unsent data, or a file that cannot be read"
                                         : "no memory to keep unsent data");
}

void SoftQp::StopSending() {
  facts_.send_failed = true;
  files_.ForgetRoom();
  send_queue_.Abandon();
  CollectSends();
}

verbs::Interest SoftQp::interest() const {
  // The peer of a local link rings a doorbell when there is room.
  return {.read = !read_ended_, .write = !local_ && link_full_ && !send_queue_.empty() && may_send()};
}

// ----------------------------------------------------------------------------------------------------
// The end

void SoftQp::EndReading(LinkEnd end, std::string text, int os_error) {
  read_ended_ = true;
  if (facts_.cause.end == LinkEnd::kOpen) {
    facts_.cause.end = end;
    facts_.cause.text = std::move(text);
    facts_.cause.os_error = os_error;
  }
  PendingRead read;
  while (reads_.TakeAny(&read)) {
    if (!read.silent) ready_.PushWork(read.id, Opcode::kRdmaRead, Status::kFlushed);
  }
}

void SoftQp::FailLocally(std::string text) {
  EndReading(LinkEnd::kFailed, std::move(text));
  StopSending();
  ResetLink();
}

void SoftQp::ResetLink() {
  if (local_) local_->link().Leave();
  link_.Abort();
}

void SoftQp::Disconnect() {
  if (ending_ != Ending::kNo || facts_.send_failed) return;
  ending_ = Ending::kFinWanted;
  if (!send_queue_.empty()) return;
  ending_ = Ending::kFinSent;
  link_.ShutdownWrite();
}

void SoftQp::Abort() {
  facts_.cause.local |= facts_.cause.end == LinkEnd::kOpen;
  EndReading(LinkEnd::kReset, "aborted here");
  StopSending();
  ending_ = Ending::kFinSent;
  ResetLink();
}

const verbs::QpCounters& SoftQp::counters() const {
  counters_.fpdus_in = stream_.fpdus();
  counters_.fpdus_out = send_queue_.fpdus();
  counters_.placed_in = stream_.placed();
  if (local_) counters_.doorbells = local_->link().doorbells();
  return counters_;
}

}  // namespace sdp::iwarp
