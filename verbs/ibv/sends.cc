// The Sends functions that wait for room, take completions, and end the connection.
#include "verbs/ibv/sends.h"

#include <array>
#include <utility>

namespace sdp::ibv {
namespace {

using verbs::Opcode;
using verbs::Status;

// Completions taken by one call of the device's.
constexpr size_t kMostAtOnce = 32;

}  // namespace

Sends::Sends(Resources& resources, Arming& arming, Ending& ending, Regions& regions, Completed& completed,
             Received& received, verbs::QpCounters& counters)
    : resources_(resources),
      arming_(arming),
      ending_(ending),
      regions_(regions),
      completed_(completed),
      received_(received),
      counters_(counters),
      places_(resources) {}

bool Sends::Flush() {
  Advance();
  if (awaits_completion()) {
    arming_.ArmSends();
    // No event reports what completed before the queue was armed.
    while (Poll()) Advance();
  }
  return waiting_.empty();
}

void Sends::Advance() {
  TakeWaiting();
  StartReads();
  AskForLast();
  MaybeDisconnect();
  PostChain();
}

bool Sends::awaits_completion() const {
  return !waiting_.empty() || wanted_ > 0 || !reads_posted_.empty() || !reads_waiting_.empty() ||
         (ending_.disconnect_asked() && !ending_.disconnected()) || (asked_ && !answered_) ||
         (last_awaited_ && !posted_.empty());
}

void Sends::TakeWaiting() {
  while (!waiting_.empty() && !ending_.ended()) {
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

// Room comes with a completion. If none of the device's work asks for one, an empty RDMA Write does.
void Sends::AskForRoom() {
  if (!ending_.ended() && !posted_.empty() && posted_.size() <= unsignaled_ &&
      InDevice() < resources_.depths.sends)
    PostEmptyWrite(/*signaled=*/true);
}

void Sends::DetachBorrowed() {
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

// When the process ends, the device drops what it has not sent, so the caller waits until this returns true.
bool Sends::AllTaken() {
  if (ending_.ended()) return true;
  last_awaited_ = true;
  Poll();
  Flush();
  last_awaited_ = !ending_.ended() && (!waiting_.empty() || !posted_.empty());
  return !last_awaited_;
}

// The completion of an empty RDMA Write shows that everything before it has left.
void Sends::AskForLast() {
  if (!(last_awaited_ || ending_.disconnect_asked()) || ending_.disconnected() || ending_.ended() ||
      !waiting_.empty() || posted_.empty())
    return;
  if (unsignaled_ > 0 && InDevice() < resources_.depths.sends) PostEmptyWrite(/*signaled=*/true);
}

// Disconnects once the device is done with everything, because a disconnect stops the device.
void Sends::MaybeDisconnect() {
  if (!ending_.disconnect_asked() || ending_.disconnected() || ending_.ended() || !waiting_.empty() ||
      !posted_.empty())
    return;
  ending_.Disconnect();
}

bool Sends::Poll() {
  std::array<ibv_wc, kMostAtOnce> done;
  bool any = false;
  for (;;) {
    const int count = ibv_poll_cq(resources_.send_cq, static_cast<int>(done.size()), done.data());
    for (int i = 0; i < count; ++i) HandleCompletion(done[static_cast<size_t>(i)]);
    if (count <= 0) break;
    arming_.NoteSends();
    any = true;
  }
  PostChain();  // RDMA Reads that waited for an earlier one to end
  return any;
}

void Sends::HandleCompletion(const ibv_wc& wc) {
  if ((wc.wr_id & kAskBit) != 0) {
    answered_ = wc.status == IBV_WC_SUCCESS;
    StartReads();
    return;
  }
  if ((wc.wr_id & kReadBit) != 0) return HandleReadCompletion(wc);
  if (wc.status != IBV_WC_SUCCESS) {  // FlushWork completes all of them at the end
    ending_.NoteFailure(wc, "a Send or RDMA Write");
    return;
  }
  while (posted_base_ <= wc.wr_id && !posted_.empty()) {
    const Posted& posted = posted_.front();
    places_.FreeUpTo(posted.ring_mark);
    if (posted.wanted) {
      --wanted_;
      completed_.PushWork(posted.id, posted.opcode, Status::kSuccess);
    }
    posted_.pop_front();
    ++posted_base_;
  }
}

void Sends::HandleReadCompletion(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) ending_.NoteFailure(wc, "an RDMA Read");
  if (reads_posted_.empty()) return;
  const verbs::RdmaReadWork work = reads_posted_.front();
  reads_posted_.pop_front();
  const Status status = wc.status == IBV_WC_SUCCESS        ? Status::kSuccess
                        : wc.status == IBV_WC_WR_FLUSH_ERR ? Status::kFlushed
                        : ending_.terminated()             ? Status::kRemoteError
                                                           : Status::kLocalError;
  completed_.PushWork(work.id, Opcode::kRdmaRead, status, status == Status::kSuccess ? work.length : 0);
  StartReads();
}

void Sends::Abort() {
  if (ending_.Abort()) FlushWork();
}

void Sends::EndByFailure() {
  if (ending_.EndByFailure()) FlushWork();
}

void Sends::FlushWork() {
  // Work that asked for no completion counts as done, because the device does not report its fate.
  for (Posted& posted : posted_) {
    if (std::exchange(posted.wanted, false)) completed_.PushWork(posted.id, posted.opcode, Status::kFlushed);
  }
  for (const Waiting& waiting : waiting_)
    completed_.PushWork(waiting.work.id, waiting.work.opcode, Status::kFlushed);
  for (const auto* queue : {&reads_posted_, &reads_waiting_}) {
    for (const verbs::RdmaReadWork& work : *queue)
      completed_.PushWork(work.id, Opcode::kRdmaRead, Status::kFlushed);
  }
  // Registered memory stays until the queue pair is destroyed, because the device may still use it.
  waiting_.clear();
  reads_posted_.clear();
  reads_waiting_.clear();
  wanted_ = 0;
  unsent_ = 0;
}

}  // namespace sdp::ibv
