// The Sends functions that post: work that has room goes to the device, and the rest waits.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs/ibv/sends.h"

namespace sdp::ibv {
namespace {

using verbs::Opcode;
using verbs::PostResult;
using verbs::Status;

// The most work that waits. Further work gets kNoResource.
constexpr size_t kMostWaiting = 4096;
constexpr size_t kMostReads = 1024;
// A Send of this size or more from the ring asks for its completion. Otherwise the kernel's siw would send it
// from its pages, which may not change until the peer has it. No completion reports that, so such Sends are
// kept (kept_sends.h).
constexpr size_t kSignalFrom = 4096;
// The STag of an RDMA Write or Read without content: no RNIC looks it up.
constexpr STag kNoStag{1};

}  // namespace

void Sends::OpenPeer() {
  PostEmptyWrite(/*signaled=*/false);
  PostChain();
}

bool Sends::AskPeer() {
  if (ord_ == 0) return false;
  ibv_sge nothing{.addr = places_.ring().address(), .length = 0, .lkey = places_.ring().key()};
  ibv_send_wr request{};
  request.wr_id = kAskBit;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.rkey = kNoStag.value();
  asked_ = true;
  Chain(request, nothing);
  PostChain();
  arming_.ArmSends();
  return true;
}

PostResult Sends::PostSend(const verbs::SendWork& work) {
  const uint64_t size = work.header.size() + TotalSize(work.payload);
  if (work.header.size() > verbs::kMaxSendHeader || size > UINT32_MAX) {
    completed_.PushWork(work.id, Opcode::kSend, Status::kLocalError);
    return PostResult::kOk;
  }
  if (ending_.ended() || ending_.disconnect_asked()) return PostResult::kBroken;
  const Outgoing outgoing{.id = work.id,
                          .opcode = Opcode::kSend,
                          .signaled = work.signaled,
                          .solicited = work.solicited,
                          .invalidate = work.invalidate,
                          .remote_stag = {},
                          .remote_to = 0};
  SendPlace place;
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

PostResult Sends::PostRdmaWrite(const verbs::RdmaWriteWork& work) {
  const uint64_t size = TotalSize(work.local);
  if (size > UINT32_MAX) {
    completed_.PushWork(work.id, Opcode::kRdmaWrite, Status::kLocalError);
    return PostResult::kOk;
  }
  if (ending_.ended() || ending_.disconnect_asked()) return PostResult::kBroken;
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

PostResult Sends::Wait(Waiting waiting) {
  if (ending_.ended()) return PostResult::kBroken;  // memory was lacking, which ended the connection
  if (waiting_.size() >= kMostWaiting) return PostResult::kNoResource;
  unsent_ += waiting.size + 1;  // + 1: an empty message also counts as unsent
  if (waiting.work.opcode == Opcode::kSend) ++waiting_sends_;
  waiting_.push_back(std::move(waiting));
  return PostResult::kOk;
}

// Takes room in the send queue and registered memory. Returns false if there is none now, or if the
// connection has ended.
bool Sends::TakePlace(const Outgoing& work, size_t size, SendPlace* place) {
  if (TryPlace(work, size, place)) return true;
  if (ending_.ended()) return false;
  // The device may be done with what it has, and asking costs less than waiting.
  PostChain();
  return Poll() && TryPlace(work, size, place);
}

bool Sends::TryPlace(const Outgoing& work, size_t size, SendPlace* place) {
  if (InDevice() >= resources_.depths.sends) return false;
  const bool long_send = work.opcode == Opcode::kSend && !work.signaled && size >= kSignalFrom;
  switch (places_.Take(size, long_send, place)) {
    case SendPlaces::Taken::kYes:
      return true;
    case SendPlaces::Taken::kNoRoom:
      return false;
    case SendPlaces::Taken::kNoMemory:
      ending_.SetFailure(errno, "no registered memory for a long Send");
      Abort();
      return false;
  }
  return false;
}

// Copies as much of `waiting` as one work request carries, and posts it. Returns false if there is no room
// now.
bool Sends::PostPiece(Waiting& waiting, bool* done) {
  size_t size = static_cast<size_t>(waiting.size);
  // A Send is one work request whatever its length; an RDMA Write may be split.
  if (waiting.work.opcode == Opcode::kRdmaWrite) size = std::min(size, places_.ring().size() / 4);
  SendPlace place;
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

// Posts the first `size` bytes of `place`.
void Sends::PostPlaced(const Outgoing& work, SendPlace place, size_t size) {
  const ibv_sge piece{.addr = reinterpret_cast<uint64_t>(place.data),
                      .length = static_cast<uint32_t>(size),
                      .lkey = place.key};
  ibv_send_wr request{};
  // The kernel's siw never sends an inlined Send with Invalidate.
  if (size > 0 && size <= resources_.depths.inline_bytes && !work.invalidate)
    request.send_flags |= IBV_SEND_INLINE;
  if (work.solicited) request.send_flags |= IBV_SEND_SOLICITED;
  if (work.opcode == Opcode::kSend && !place.kept) places_.CountOtherSend();
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

void Sends::SubmitWork(ibv_send_wr& request, const ibv_sge& piece, Posted posted) {
  // A completion at intervals frees everything before it (selective signalling).
  const uint32_t from_ring = posted.kept ? 0 : piece.length;
  if ((request.send_flags & IBV_SEND_SIGNALED) != 0 || posted.wanted || from_ring >= kSignalFrom ||
      posted.own_memory != nullptr || ++unsignaled_ >= resources_.depths.sends / 4 ||
      (unsignaled_bytes_ += from_ring) >= places_.ring().size() / 4) {
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

void Sends::Chain(const ibv_send_wr& request, const ibv_sge& piece) {
  chain_.Add(request, piece);
  if (chain_.full()) PostChain();
}

void Sends::PostChain() {
  if (chain_.empty()) return;
  ++counters_.write_calls;
  if (const int error = chain_.Post(resources_.id->qp); error != 0) HandleRefusal(error);
}

// What the device has not taken is missing from the stream, so nothing may follow it.
void Sends::HandleRefusal(int error) {
  if (ending_.broken() || ending_.ended() || ending_.disconnected()) return;
  // A queue pair whose connection has ended refuses everything, and has flushed its work. That end is then
  // the cause, and the connection manager is about to report it.
  received_.PollAll();
  if (error == ENOTCONN || ending_.flushed() || resources_.Look().connection_manager) return;
  ending_.Refuse(error);
}

void Sends::PostEmptyWrite(bool signaled) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.rkey = kNoStag.value();
  if (signaled) request.send_flags = IBV_SEND_SIGNALED;
  SubmitWork(request, {},
             {.id = {},
              .opcode = Opcode::kRdmaWrite,
              .wanted = false,
              .ring_mark = places_.ring().mark(),
              .kept = false,
              .own_memory = nullptr});
}

PostResult Sends::PostRdmaRead(const verbs::RdmaReadWork& work) {
  if (ending_.ended() || ending_.disconnect_asked()) return PostResult::kBroken;
  if (reads_waiting_.size() >= kMostReads) return PostResult::kNoResource;
  const ibv_mr* const region = regions_.Find(work.local_stag);
  const bool fits = region != nullptr && work.local_to >= reinterpret_cast<uint64_t>(region->addr) &&
                    work.local_to + work.length <= reinterpret_cast<uint64_t>(region->addr) + region->length;
  if (ord_ == 0 || (work.length > 0 && !fits)) {
    completed_.PushWork(work.id, Opcode::kRdmaRead, Status::kLocalError);
    return PostResult::kOk;
  }
  if (work.length == 0) {
    completed_.PushWork(work.id, Opcode::kRdmaRead, Status::kSuccess);
    return PostResult::kOk;
  }
  reads_waiting_.push_back(work);
  StartReads();
  return PostResult::kOk;
}

void Sends::StartReads() {
  const size_t unanswered = asked_ && !answered_ ? 1 : 0;
  while (!reads_waiting_.empty() && reads_posted_.size() + unanswered < ord_ && waiting_.empty() &&
         InDevice() < resources_.depths.sends) {
    const verbs::RdmaReadWork work = reads_waiting_.front();
    reads_waiting_.pop_front();
    const ibv_mr* const region = regions_.Find(work.local_stag);
    if (region == nullptr) {  // deregistered since
      completed_.PushWork(work.id, Opcode::kRdmaRead, Status::kLocalError);
      continue;
    }
    const ibv_sge sink{.addr = work.local_to, .length = work.length, .lkey = region->lkey};
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
