// Posting: of what the owner posts, what has room is handed to the device, and the rest waits.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs/ibv/ibv_qp.h"

namespace sdp::ibv {
namespace {

using verbs::LinkEnd;
using verbs::Opcode;
using verbs::PostResult;
using verbs::Status;

// Beyond this the owner is held back.
constexpr size_t kMostWaiting = 4096;
constexpr size_t kMostReads = 1024;
// From this size on each Send from the ring asks for its completion. The kernel's siw sends larger ones from
// the very pages when they do not, and then a page may not change until the peer has it, which no completion
// tells: they are kept (kept_sends.h).
constexpr size_t kSignalFrom = 4096;
// Memory for those, when there were so many. It is pinned: where little may be, there is none.
constexpr size_t kKeptSize = 1024 * 1024;
constexpr uint32_t kLongSendsBefore = 16;
constexpr uint64_t kKeptPerLimit = 64;
// Of that limit, the part that all connections' together may take.
constexpr uint64_t kAllKeptPerLimit = 8;
std::atomic<size_t> all_kept{0};
// STag of the RDMA Write without content: nobody looks it up.
constexpr STag kNoStag{1};

uint64_t TotalSize(std::span<const Bytes> parts) {
  uint64_t size = 0;
  for (const Bytes& part : parts) size += part.size();
  return size;
}

}  // namespace

void IbvQp::OpenPeer() {
  PostEmptyWrite(/*signaled=*/false);
  PostChain();
}

bool IbvQp::AskPeer() {
  if (ord_ == 0) return false;
  ibv_sge nothing{.addr = ring_.address(), .length = 0, .lkey = ring_.key()};
  ibv_send_wr request{};
  request.wr_id = kAskBit;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.rkey = kNoStag.value();
  asked_ = true;
  Chain(request, nothing);
  PostChain();
  ArmSends();
  return true;
}

PostResult IbvQp::PostSend(const verbs::SendWork& work) {
  const uint64_t size = work.header.size() + TotalSize(work.payload);
  if (work.header.size() > verbs::kMaxSendHeader || size > UINT32_MAX) {
    PushWork(work.id, Opcode::kSend, Status::kLocalError);
    return PostResult::kOk;
  }
  if (ended_ || disconnect_wanted_) return PostResult::kBroken;
  const Outgoing outgoing{.id = work.id,
                          .opcode = Opcode::kSend,
                          .signaled = work.signaled,
                          .solicited = work.solicited,
                          .invalidate = work.invalidate,
                          .remote_stag = {},
                          .remote_to = 0};
  Place place;
  if (waiting_.empty() && TakePlace(outgoing, static_cast<size_t>(size), &place)) {
    std::byte* to = place.data;
    if (!work.header.empty()) std::memcpy(to, work.header.data(), work.header.size());
    to += work.header.size();
    for (const Bytes& part : work.payload) {
      if (!part.empty()) std::memcpy(to, part.data(), part.size());
      to += part.size();
    }
    PostPlaced(outgoing, std::move(place), static_cast<size_t>(size));
    return PostResult::kOk;
  }
  Waiting waiting{
      .work = outgoing, .parts = {}, .kept = {work.header.begin(), work.header.end()}, .size = size};
  waiting.parts.reserve(1 + work.payload.size());
  if (!waiting.kept.empty()) waiting.parts.emplace_back(waiting.kept);
  waiting.parts.insert(waiting.parts.end(), work.payload.begin(), work.payload.end());
  return Wait(std::move(waiting));
}

PostResult IbvQp::PostRdmaWrite(const verbs::RdmaWriteWork& work) {
  const uint64_t size = TotalSize(work.local);
  if (size > UINT32_MAX) {
    PushWork(work.id, Opcode::kRdmaWrite, Status::kLocalError);
    return PostResult::kOk;
  }
  if (ended_ || disconnect_wanted_) return PostResult::kBroken;
  Waiting waiting{.work = {.id = work.id,
                           .opcode = Opcode::kRdmaWrite,
                           .signaled = work.signaled,
                           .solicited = false,
                           .invalidate = {},
                           .remote_stag = work.remote_stag,
                           .remote_to = work.remote_to},
                  .parts = {work.local.begin(), work.local.end()},
                  .kept = {},
                  .size = size};
  bool done = false;
  if (waiting_.empty() && PostPiece(waiting, &done) && done) return PostResult::kOk;
  return Wait(std::move(waiting));
}

PostResult IbvQp::Wait(Waiting waiting) {
  if (ended_) return PostResult::kBroken;  // there was no memory for it
  if (waiting_.size() >= kMostWaiting) return PostResult::kNoResource;
  unsent_ += waiting.size + 1;  // a message without a byte is unsent as well
  if (waiting.work.opcode == Opcode::kSend) ++waiting_sends_;
  waiting_.push_back(std::move(waiting));
  return PostResult::kOk;
}

// Room in the send queue, and registered memory. False: not now; or, with the end of the connection, never.
bool IbvQp::TakePlace(const Outgoing& work, size_t size, Place* place) {
  if (TryPlace(work, size, place)) return true;
  if (ended_) return false;
  // The device may be done with what it has, and that costs less to find out than to wait for.
  PostChain();
  return PollSends() && TryPlace(work, size, place);
}

bool IbvQp::TryPlace(const Outgoing& work, size_t size, Place* place) {
  if (InDevice() >= resources_->depths.sends) return false;
  if (TryKeep(work, size, place)) return true;
  if (size > ring_.largest()) {
    place->own_memory = RegisteredMemory::Make(api_, resources_->pd, size, IBV_ACCESS_LOCAL_WRITE);
    if (place->own_memory == nullptr) {
      failure_ = {.end = LinkEnd::kFailed, .os_error = errno, .text = "no registered memory for a long Send"};
      Abort();
      return false;
    }
    place->data = place->own_memory->data();
    place->key = place->own_memory->key();
  } else {
    place->data = ring_.Take(size);
    if (place->data == nullptr) return false;
    place->key = ring_.key();
  }
  place->ring_mark = ring_.mark();
  return true;
}

// Memory that nothing else uses before the peer has the message.
bool IbvQp::TryKeep(const Outgoing& work, size_t size, Place* place) {
  if (work.opcode != Opcode::kSend || work.signaled || size < kSignalFrom || !resources_->sends_pages)
    return false;
  if (kept_memory_ == nullptr) {
    if (long_sends_ > kLongSendsBefore || ++long_sends_ <= kLongSendsBefore) return false;
    if (resources_->lockable / kKeptPerLimit < kKeptSize) return false;
    if (all_kept.fetch_add(kKeptSize, std::memory_order_relaxed) + kKeptSize <=
        resources_->lockable / kAllKeptPerLimit) {
      kept_memory_ = RegisteredMemory::Make(api_, resources_->pd, kKeptSize, IBV_ACCESS_LOCAL_WRITE);
    }
    if (kept_memory_ == nullptr) {
      all_kept.fetch_sub(kKeptSize, std::memory_order_relaxed);
      return false;
    }
    kept_.emplace(kept_memory_->size());
  }
  if (size > kept_->largest()) return false;
  const std::optional<size_t> start = kept_->Keep(size);
  if (!start) return false;
  *place = {.data = kept_memory_->data() + *start,
            .key = kept_memory_->key(),
            .ring_mark = ring_.mark(),
            .kept = true,
            .own_memory = nullptr};
  return true;
}

void IbvQp::GiveUpKept() { all_kept.fetch_sub(kKeptSize, std::memory_order_relaxed); }

void IbvQp::NotePeerHas(uint64_t missing) {
  if (kept_) kept_->NotePeerHas(missing, waiting_sends_);
}

// Copies as much of `waiting` as one work request carries and posts it. False: no room now.
bool IbvQp::PostPiece(Waiting& waiting, bool* done) {
  size_t size = static_cast<size_t>(waiting.size);
  // A Send is one work request whatever its length; an RDMA Write may be cut.
  if (waiting.work.opcode == Opcode::kRdmaWrite) size = std::min(size, ring_.size() / 4);
  Place place;
  if (!TakePlace(waiting.work, size, &place)) return false;
  size_t copied = 0;
  size_t used_parts = 0;
  for (Bytes& part : waiting.parts) {
    const size_t n = std::min(part.size(), size - copied);
    if (n > 0) std::memcpy(place.data + copied, part.data(), n);
    copied += n;
    part = part.subspan(n);
    if (!part.empty()) break;
    ++used_parts;
  }
  waiting.parts.erase(waiting.parts.begin(), waiting.parts.begin() + static_cast<ptrdiff_t>(used_parts));
  waiting.size -= size;
  *done = waiting.size == 0;
  Outgoing piece = waiting.work;
  piece.signaled = piece.signaled && *done;
  waiting.work.remote_to += size;
  PostPlaced(piece, std::move(place), size);
  return true;
}

// The first `size` bytes of `place`.
void IbvQp::PostPlaced(const Outgoing& work, Place place, size_t size) {
  const ibv_sge piece{.addr = reinterpret_cast<uint64_t>(place.data),
                      .length = static_cast<uint32_t>(size),
                      .lkey = place.key};
  ibv_send_wr request{};
  // A Send with Invalidate that is inlined never leaves the kernel's siw.
  if (size > 0 && size <= resources_->depths.inline_bytes && !work.invalidate)
    request.send_flags |= IBV_SEND_INLINE;
  if (work.solicited) request.send_flags |= IBV_SEND_SOLICITED;
  if (kept_ && work.opcode == Opcode::kSend && !place.kept) kept_->CountOther();
  if (work.opcode == Opcode::kRdmaWrite) {
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = work.remote_to;
    request.wr.rdma.rkey = work.remote_stag.value();
  } else if (work.invalidate) {
    request.opcode = IBV_WR_SEND_WITH_INV;
    request.invalidate_rkey = work.invalidate->value();
    request.wr.rdma.rkey = work.invalidate->value();  // siw's provider looks for it here
  } else {
    request.opcode = IBV_WR_SEND;
  }
  SubmitWork(request, piece,
             {.id = work.id,
              .opcode = work.opcode,
              .wanted = work.signaled,
              .ring_mark = place.ring_mark,
              .kept = place.kept,
              .own_memory = std::move(place.own_memory)});
}

void IbvQp::SubmitWork(ibv_send_wr& request, const ibv_sge& piece, Posted posted) {
  // A completion now and then frees what lies before it (selective signalling).
  const uint32_t from_ring = posted.kept ? 0 : piece.length;
  if ((request.send_flags & IBV_SEND_SIGNALED) != 0 || posted.wanted || from_ring >= kSignalFrom ||
      posted.own_memory != nullptr || ++unsignaled_ >= resources_->depths.sends / 4 ||
      (unsignaled_bytes_ += from_ring) >= ring_.size() / 4) {
    request.send_flags |= IBV_SEND_SIGNALED;
    unsignaled_ = 0;
    unsignaled_bytes_ = 0;
  }
  if (posted.wanted) ++wanted_;
  request.wr_id = posted_base_ + posted_.size();
  posted_.push_back(std::move(posted));
  ++counters_.fpdus_out;
  counters_.bytes_out += piece.length;
  Chain(request, piece);
}

void IbvQp::Chain(const ibv_send_wr& request, const ibv_sge& piece) {
  chain_.Add(request, piece);
  if (chain_.full()) PostChain();
}

void IbvQp::PostChain() {
  if (chain_.empty()) return;
  ++counters_.write_calls;
  if (const int error = chain_.Post(resources_->id->qp); error != 0) HandleRefusal(error);
}

// What the device has not taken is missing from the stream: nothing may follow.
void IbvQp::HandleRefusal(int error) {
  if (broken_ || ended_ || disconnected_) return;
  // A queue pair whose connection has ended refuses everything, and has flushed what it had: then that end is
  // the reason, and about to be told.
  while (PollReceives()) {
  }
  if (error == ENOTCONN || flushed_ || resources_->Look().connection_manager) return;
  broken_ = true;
  if (failure_.end == LinkEnd::kOpen) {
    failure_ = {.end = LinkEnd::kFailed,
                .os_error = error,
                .text = name_ + " refused a work request: " + strerrordesc_np(error)};
  }
  StopDevice();
}

void IbvQp::PostEmptyWrite(bool signaled) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.rkey = kNoStag.value();
  if (signaled) request.send_flags = IBV_SEND_SIGNALED;
  SubmitWork(request, {},
             {.id = {},
              .opcode = Opcode::kRdmaWrite,
              .wanted = false,
              .ring_mark = ring_.mark(),
              .kept = false,
              .own_memory = nullptr});
}

PostResult IbvQp::PostRdmaRead(const verbs::RdmaReadWork& work) {
  if (ended_ || disconnect_wanted_) return PostResult::kBroken;
  if (reads_waiting_.size() >= kMostReads) return PostResult::kNoResource;
  const auto region = regions_.find(work.local_stag);
  const bool fits = region != regions_.end() &&
                    work.local_to >= reinterpret_cast<uint64_t>(region->second->addr) &&
                    work.local_to + work.length <=
                        reinterpret_cast<uint64_t>(region->second->addr) + region->second->length;
  if (ord_ == 0 || (work.length > 0 && !fits)) {
    PushWork(work.id, Opcode::kRdmaRead, Status::kLocalError);
    return PostResult::kOk;
  }
  if (work.length == 0) {
    PushWork(work.id, Opcode::kRdmaRead, Status::kSuccess);
    return PostResult::kOk;
  }
  reads_waiting_.push_back(work);
  StartReads();
  return PostResult::kOk;
}

void IbvQp::StartReads() {
  const size_t unanswered = asked_ && !answered_ ? 1 : 0;
  while (!reads_waiting_.empty() && reads_posted_.size() + unanswered < ord_ && waiting_.empty() &&
         InDevice() < resources_->depths.sends) {
    const verbs::RdmaReadWork work = reads_waiting_.front();
    reads_waiting_.pop_front();
    const auto region = regions_.find(work.local_stag);
    if (region == regions_.end()) {  // deregistered since
      PushWork(work.id, Opcode::kRdmaRead, Status::kLocalError);
      continue;
    }
    const ibv_sge sink{.addr = work.local_to, .length = work.length, .lkey = region->second->lkey};
    ibv_send_wr request{};
    request.wr_id = kReadBit;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = work.remote_to;
    request.wr.rdma.rkey = work.remote_stag.value();
    reads_posted_.push_back(work);
    Chain(request, sink);
  }
}

}  // namespace sdp::ibv
