// What a queue pair is made of, its memory, and how it lets go: of what was posted, and of the connection.
#include "verbs/ibv/ibv_qp.h"

#include <algorithm>
#include <utility>

namespace sdp::ibv {
namespace {

using verbs::LinkEnd;
using verbs::Opcode;
using verbs::Status;

constexpr size_t kRingSize = 256 * 1024;
// What the set-up measures may hold a packet's loss, or a busy process.
constexpr Duration kMostRoundTrip = std::chrono::milliseconds(200);

}  // namespace

IbvQp::IbvQp(std::unique_ptr<Resources> resources, const verbs::QpOptions& options)
    : QueuePair({.pollable = this, .device = this}),
      resources_(std::move(resources)),
      api_(resources_->api),
      options_(options),
      name_(resources_->id->verbs->device->name),
      receives_(*resources_, options.receive_buffer_size) {}

IbvQp::~IbvQp() {
  // The queue pair goes before the memory it may be reading.
  if (resources_->id->qp != nullptr) api_.rdma_destroy_qp(resources_->id);
  for (const auto& [stag, region] : regions_) api_.ibv_dereg_mr(region);
  if (kept_memory_ != nullptr) GiveUpKept();
}

bool IbvQp::Prepare() {
  if (!ring_.Make(*resources_, std::max<size_t>(kRingSize, size_t{4} * options_.receive_buffer_size))) {
    return resources_->Fail("registering the send buffer");
  }
  return receives_.Post(options_.initial_receives) || resources_->Fail("registering the receive buffers");
}

void IbvQp::Establish(uint16_t ird, uint16_t ord) {
  ird_ = ird;
  ord_ = std::min(ord, options_.ord);
  ArmReceives(Awaited::kAll);
}

void IbvQp::SetRoundTrip(Duration duration) { round_trip_ = std::min(duration, kMostRoundTrip); }

void IbvQp::Names(sockaddr_storage* local, sockaddr_storage* peer) const {
  *local = resources_->id->route.addr.src_storage;
  *peer = resources_->id->route.addr.dst_storage;
}

void IbvQp::SetOrd(uint16_t ord) { ord_ = std::min(ord_, ord); }

// ----------------------------------------------------------------------------------------------------
// Memory

std::optional<verbs::MemoryRegion> IbvQp::Register(MutableBytes memory, verbs::Access access) {
  // The sink of an RDMA Read is written to by the peer: on iWARP it needs the right for it.
  int rights = IBV_ACCESS_LOCAL_WRITE;
  const auto bits = static_cast<uint8_t>(access);
  if (access == verbs::Access::kLocal) rights |= IBV_ACCESS_REMOTE_WRITE;
  if ((bits & static_cast<uint8_t>(verbs::Access::kRemoteRead)) != 0) rights |= IBV_ACCESS_REMOTE_READ;
  if ((bits & static_cast<uint8_t>(verbs::Access::kRemoteWrite)) != 0) rights |= IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* const region = api_.ibv_reg_mr(resources_->pd, memory.data(), memory.size(), rights);
  if (region == nullptr) return std::nullopt;
  regions_.emplace(STag(region->rkey), region);
  return verbs::MemoryRegion{.stag = STag(region->rkey),
                             .base_to = reinterpret_cast<uint64_t>(memory.data()),
                             .length = static_cast<uint32_t>(memory.size())};
}

void IbvQp::Deregister(STag stag) {
  const auto region = regions_.find(stag);
  if (region == regions_.end()) return;
  api_.ibv_dereg_mr(region->second);
  regions_.erase(region);
}

// ----------------------------------------------------------------------------------------------------
// Sending: what was posted goes to the device in chains, at the latest with Flush().

bool IbvQp::Flush() {
  Advance();
  if (WaitsForSends()) {
    ArmSends();
    // What completed before it was armed tells nobody.
    while (PollSends()) Advance();
  }
  return waiting_.empty();
}

void IbvQp::Advance() {
  TakeWaiting();
  StartReads();
  AskForLast();
  MaybeDisconnect();
  PostChain();
}

bool IbvQp::WaitsForSends() const {
  return !waiting_.empty() || wanted_ > 0 || !reads_posted_.empty() || !reads_waiting_.empty() ||
         (disconnect_wanted_ && !disconnected_) || (asked_ && !answered_) ||
         (last_awaited_ && !posted_.empty());
}

void IbvQp::TakeWaiting() {
  while (!waiting_.empty() && !ended_) {
    Waiting& waiting = waiting_.front();
    const uint64_t before = waiting.size;
    bool done = false;
    const bool posted = PostPiece(waiting, &done);
    if (waiting_.empty()) break;  // aborted
    unsent_ -= before - waiting.size;
    if (!posted) return AskForRoom();
    if (!done) continue;
    --unsent_;
    if (waiting.work.opcode == Opcode::kSend) --waiting_sends_;
    waiting_.pop_front();
  }
}

// Room comes with a completion: where no work that the device has asks for one, one more does.
void IbvQp::AskForRoom() {
  if (!ended_ && !posted_.empty() && posted_.size() <= unsignaled_ && InDevice() < resources_->depths.sends)
    PostEmptyWrite(/*signaled=*/true);
}

void IbvQp::DetachBorrowed() {
  for (Waiting& work : waiting_) {
    if (work.parts.empty() ||
        (work.parts.size() == 1 && !work.kept.empty() && work.parts[0].data() >= work.kept.data() &&
         work.parts[0].data() < work.kept.data() + work.kept.size())) {
      continue;
    }
    std::vector<std::byte> all;
    all.reserve(static_cast<size_t>(work.size));
    for (const Bytes& part : work.parts) all.insert(all.end(), part.begin(), part.end());
    counters_.copied_out += all.size();
    work.kept = std::move(all);
    work.parts.assign(1, Bytes(work.kept));
  }
}

void IbvQp::Disconnect() {
  if (disconnect_wanted_ || ended_) return;
  disconnect_wanted_ = true;
  Flush();
}

// The device forgets what it has not sent when the process ends.
bool IbvQp::AllTaken() {
  if (ended_) return true;
  last_awaited_ = true;
  PollSends();
  Flush();
  last_awaited_ = !ended_ && (!waiting_.empty() || !posted_.empty());
  return !last_awaited_;
}

// The completion of an empty RDMA Write says that all before it has left.
void IbvQp::AskForLast() {
  if (!(last_awaited_ || disconnect_wanted_) || disconnected_ || ended_ || !waiting_.empty() ||
      posted_.empty())
    return;
  if (unsignaled_ > 0 && InDevice() < resources_->depths.sends) PostEmptyWrite(/*signaled=*/true);
}

// Once the device is done with everything, because disconnecting stops it.
void IbvQp::MaybeDisconnect() {
  if (!disconnect_wanted_ || disconnected_ || ended_ || !waiting_.empty() || !posted_.empty()) return;
  disconnected_ = true;
  api_.rdma_disconnect(resources_->id);
}

// It takes nothing more, and flushes what it has; the peer sees a reset.
void IbvQp::StopDevice() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  api_.ibv_modify_qp(resources_->id->qp, &attributes, IBV_QP_STATE);
  if (!std::exchange(disconnected_, true)) api_.rdma_disconnect(resources_->id);
}

void IbvQp::Abort() {
  if (ended_) return;
  StopDevice();
  if (failure_.end != LinkEnd::kOpen) {
    End(failure_.end, failure_.text);
  } else {
    cause_.local = true;
    End(LinkEnd::kReset, "aborted here");
  }
}

void IbvQp::PushWork(WorkId id, Opcode opcode, Status status, uint32_t length) {
  verbs::Completion completion;
  completion.opcode = opcode;
  completion.status = status;
  completion.id = id;
  completion.length = length;
  ready_.push_back(completion);
}

}  // namespace sdp::ibv
