// Completions, events and the end.
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs/ibv/ibv_qp.h"
#include "verbs/ibv/uncancelled.h"

namespace sdp::ibv {
namespace {

using verbs::LinkEnd;
using verbs::Opcode;
using verbs::ReadStatus;
using verbs::Status;

// ReadLink returns after this many messages, so that their bytes are consumed while the cache has them.
constexpr size_t kMostAtOnce = 32;
// Beyond this many lent buffers, messages up to kCopyLimit are copied, so that unread small ones do not keep
// the window closed.
constexpr uint32_t kMostLent = 8;
constexpr uint32_t kCopyCost = 64;
// A token is the number of a buffer or of a copy, above these two bits; 0 is neither.
constexpr uint64_t kBufferToken = 1;
constexpr uint64_t kCopyToken = 2;
constexpr int kTokenBits = 2;
// Of looks in vain at the completion queues, each so many'th is one at the connection, too, which costs a
// system call.
constexpr uint32_t kPollsPerLook = 16;

}  // namespace

ReadStatus IbvQp::ReadLink() {
  // At once, whatever is found: who comes behind this may sleep without another read.
  if (armed_for_solicited_) ArmReceives(Awaited::kAll);
  return Read(Awaited::kAll);
}

// Where that makes no difference, queues that are armed need not be looked at again.
ReadStatus IbvQp::ReadForSolicited() {
  if (resources_->tells_solicited) return Read(Awaited::kSolicited);
  return may_sleep() ? ReadStatus::kWouldBlock : Read(Awaited::kAll);
}

ReadStatus IbvQp::Read(Awaited awaited) {
  if (ended_) return ReadStatus::kEnded;
  bool progress = TakeCompleted();
  if (!progress) {
    // Whose event is due is known, and no other descriptor is asked for: it would end the sleep that follows.
    if (event_due_) {
      TakeQueueEvents();
    } else {
      progress = TakeEvents();
    }
    ArmReceives(awaited);
    ArmSends();
    // What completed before it was armed tells nobody: all of that is taken now.
    while (PollReceives()) progress = true;
    progress |= PollSends();
  }
  return GoOn(progress);
}

// The queues stay armed if they were: an event that comes nevertheless waits for the next ReadLink(), and
// ends any sleep before.
ReadStatus IbvQp::PollLink() {
  if (ended_) return ReadStatus::kEnded;
  bool progress = TakeCompleted();
  if (progress) {
    idle_polls_ = 0;
  } else if (++idle_polls_ % kPollsPerLook == 0) {
    ++counters_.read_calls;
    progress = TakeConnectionEvents(resources_->Look());
  }
  return GoOn(progress);
}

bool IbvQp::TakeCompleted() {
  const bool received = PollReceives();
  return PollSends() || received;
}

void IbvQp::EndBroken() {
  TakeAll();
  End(failure_.end, failure_.text);
}

ReadStatus IbvQp::GoOn(bool progress) {
  if (broken_ && !ended_) EndBroken();
  if (ended_) return ReadStatus::kEnded;
  if (progress && (!waiting_.empty() || !reads_waiting_.empty() || disconnect_wanted_)) Flush();
  return progress ? ReadStatus::kProgress : ReadStatus::kWouldBlock;
}

// What was taken and not told nobody would be woken for.
bool IbvQp::may_sleep() const {
  return !ended_ && !broken_ && receives_armed_ && !armed_for_solicited_ && !event_due_ && ready_.empty() &&
         (sends_armed_ || !WaitsForSends());
}

bool IbvQp::HasReceived() {
  PollReceives();
  return !ready_.empty();
}

// Of two wishes the greater one counts, where the device keeps the earlier; so the lesser one is no promise.
void IbvQp::ArmReceives(Awaited awaited) {
  const bool solicited = awaited == Awaited::kSolicited;
  if (receives_armed_ && armed_for_solicited_ == solicited) return;
  receives_armed_ = true;
  armed_for_solicited_ = solicited;
  ibv_req_notify_cq(resources_->receive_cq, solicited ? 1 : 0);
}

void IbvQp::ArmSends() {
  if (WaitsForSends() && !std::exchange(sends_armed_, true)) ibv_req_notify_cq(resources_->send_cq, 0);
}

bool IbvQp::TakeEvents() {
  ++counters_.read_calls;
  const Resources::Woken woken = resources_->Look();
  const bool any = TakeConnectionEvents(woken);
  if (woken.completions) TakeQueueEvents();
  return any;
}

void IbvQp::TakeQueueEvents() {
  event_due_ = false;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  const Uncancelled uncancelled;
  // One event at most for each queue that was armed.
  while (receives_armed_ || sends_armed_) {
    ++counters_.read_calls;
    if (api_.ibv_get_cq_event(resources_->completions, &queue, &context) != 0) break;
    (queue == resources_->receive_cq ? receives_armed_ : sends_armed_) = false;
    armed_for_solicited_ = armed_for_solicited_ && receives_armed_;
    api_.ibv_ack_cq_events(queue, 1);
  }
}

bool IbvQp::TakeConnectionEvents(const Resources::Woken& woken) {
  bool any = false;
  while (woken.connection_manager) {
    const Uncancelled uncancelled;
    rdma_cm_event* const event = resources_->NextCmEvent();
    if (event == nullptr) break;
    any = true;
    TakeAll();
    HandleCmEvent(*event);
    api_.rdma_ack_cm_event(event);
  }
  if (resources_->device_failure() != nullptr && !ended_) {
    any = true;
    TakeAll();
    FailByDevice();
  }
  return any;
}

// What came before the end is delivered before it.
void IbvQp::TakeAll() {
  while (PollReceives()) {
  }
  PollSends();
}

bool IbvQp::PollReceives() {
  std::array<ibv_wc, kMostAtOnce> done;
  const int count = ibv_poll_cq(resources_->receive_cq, static_cast<int>(done.size()), done.data());
  if (count > 0) event_due_ |= receives_armed_ && !armed_for_solicited_;
  for (int i = 0; i < count; ++i) HandleReceiveCompletion(done[static_cast<size_t>(i)]);
  return count > 0;
}

bool IbvQp::PollSends() {
  std::array<ibv_wc, kMostAtOnce> done;
  bool any = false;
  for (;;) {
    const int count = ibv_poll_cq(resources_->send_cq, static_cast<int>(done.size()), done.data());
    for (int i = 0; i < count; ++i) HandleSendCompletion(done[static_cast<size_t>(i)]);
    if (count <= 0) break;
    event_due_ |= sends_armed_;
    any = true;
  }
  PostChain();  // RDMA Reads that waited for one to end
  return any;
}

void IbvQp::HandleSendCompletion(const ibv_wc& wc) {
  if ((wc.wr_id & kAskBit) != 0) {
    answered_ = wc.status == IBV_WC_SUCCESS;
    StartReads();
    return;
  }
  if (wc.status != IBV_WC_SUCCESS)
    HandleFailure(wc, (wc.wr_id & kReadBit) != 0 ? "an RDMA Read" : "a Send or RDMA Write");
  if ((wc.wr_id & kReadBit) != 0) {
    if (reads_posted_.empty()) return;
    const verbs::RdmaReadWork work = reads_posted_.front();
    reads_posted_.pop_front();
    const Status status = wc.status == IBV_WC_SUCCESS            ? Status::kSuccess
                          : wc.status == IBV_WC_WR_FLUSH_ERR     ? Status::kFlushed
                          : failure_.end == LinkEnd::kTerminated ? Status::kRemoteError
                                                                 : Status::kLocalError;
    PushWork(work.id, Opcode::kRdmaRead, status, status == Status::kSuccess ? work.length : 0);
    StartReads();
    return;
  }
  if (wc.status != IBV_WC_SUCCESS) return;  // FlushWork, at the end, says so of all
  while (posted_base_ <= wc.wr_id && !posted_.empty()) {
    const Posted& posted = posted_.front();
    ring_.FreeUpTo(posted.ring_mark);
    if (posted.wanted) {
      --wanted_;
      PushWork(posted.id, posted.opcode, Status::kSuccess);
    }
    posted_.pop_front();
    ++posted_base_;
  }
}

void IbvQp::HandleReceiveCompletion(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) {
    HandleFailure(wc, "a receive");
    return;
  }
  const std::byte* data = receives_.Take(wc.wr_id);
  if (data == nullptr) return;
  ++counters_.fpdus_in;
  counters_.bytes_in += wc.byte_len;
  verbs::Completion completion;
  completion.opcode = Opcode::kReceive;
  completion.length = wc.byte_len;
  if ((wc.wc_flags & IBV_WC_WITH_INV) != 0) {
    completion.invalidated = STag(wc.invalidated_rkey);
    // The device has made it invalid; what is left of it goes.
    Deregister(*completion.invalidated);
  }
  if (wc.byte_len > kCopyLimit || (wc.byte_len > 0 && receives_.lent() <= kMostLent)) {
    completion.token = verbs::ReceiveToken(wc.wr_id << kTokenBits | kBufferToken);
  } else {
    if (wc.byte_len > 0) {
      if (free_copies_.empty()) {
        free_copies_.push_back(static_cast<uint32_t>(copies_.size()));
        copies_.emplace_back();
      }
      const uint32_t index = free_copies_.back();
      free_copies_.pop_back();
      std::memcpy(copies_[index].data(), data, wc.byte_len);
      data = copies_[index].data();
      completion.token = verbs::ReceiveToken(uint64_t{index} << kTokenBits | kCopyToken);
    }
    receives_.Free(wc.wr_id);
  }
  if (wc.byte_len > 0) {
    completion.piece_count = 1;
    completion.pieces[0] = Bytes(data, wc.byte_len);
  }
  ready_.push_back(completion);
}

void IbvQp::PostReceives(uint32_t count) {
  if (ended_ || receives_.Post(count)) return;
  failure_ = {.end = LinkEnd::kFailed, .os_error = errno, .text = "no registered memory to receive into"};
  Abort();
}

void IbvQp::Release(verbs::ReceiveToken token) {
  const uint64_t number = token.value() >> kTokenBits;
  switch (token.value() & ((1 << kTokenBits) - 1)) {
    case kBufferToken:
      if (!receives_.Free(number)) PostReceives(0);
      return;
    case kCopyToken:
      free_copies_.push_back(static_cast<uint32_t>(number));
      return;
    default:
      return;
  }
}

uint32_t IbvQp::ReceiveCost(uint32_t length) const {
  return length <= kCopyLimit ? length + kCopyCost : receives_.buffer_size();
}

bool IbvQp::PollCompletion(verbs::Completion* out) {
  if (ready_.empty()) return false;
  *out = ready_.front();
  ready_.pop_front();
  return true;
}

// The first work request that failed for a reason of its own: the rest is flushed, and the connection manager
// tells the end.
void IbvQp::HandleFailure(const ibv_wc& wc, const char* what) {
  flushed_ = flushed_ || wc.status == IBV_WC_WR_FLUSH_ERR;
  if (wc.status == IBV_WC_WR_FLUSH_ERR || failure_.end != LinkEnd::kOpen) return;
  const bool remote = wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_OP_ERR ||
                      wc.status == IBV_WC_REM_INV_REQ_ERR;
  failure_.end = remote ? LinkEnd::kTerminated : LinkEnd::kFailed;
  failure_.text = std::string(what) + " failed: " + api_.ibv_wc_status_str(wc.status);
}

void IbvQp::HandleCmEvent(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_DISCONNECTED:
      if (failure_.end != LinkEnd::kOpen) return End(failure_.end, failure_.text);
      return End(LinkEnd::kClosedByPeer, "closed by the peer");
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return End(LinkEnd::kFailed, "the RDMA device " + name_ + " was removed");
    default:  // ESTABLISHED of the accepting side, TIMEWAIT_EXIT
      return;
  }
}

// Whoever reported it has not necessarily ended the connection: the peer is to see a reset.
void IbvQp::FailByDevice() {
  if (failure_.end == LinkEnd::kOpen) {
    failure_.end = LinkEnd::kFailed;
    failure_.text = name_ + ": " + resources_->device_failure();
  }
  Abort();
}

void IbvQp::End(LinkEnd end, std::string text) {
  if (ended_) return;
  ended_ = true;
  cause_.end = end;
  cause_.text = std::move(text);
  cause_.os_error = failure_.os_error;
  // Both sides give up their half: the id is done with, and the device removed only when all have let go.
  if (!std::exchange(disconnected_, true)) api_.rdma_disconnect(resources_->id);
  FlushWork();
}

void IbvQp::FlushWork() {
  // Whether the device has done those that asked for no completion nobody knows: they are taken for done.
  for (Posted& posted : posted_) {
    if (std::exchange(posted.wanted, false)) PushWork(posted.id, posted.opcode, Status::kFlushed);
  }
  for (const Waiting& waiting : waiting_) PushWork(waiting.work.id, waiting.work.opcode, Status::kFlushed);
  for (const auto* queue : {&reads_posted_, &reads_waiting_}) {
    for (const verbs::RdmaReadWork& work : *queue) PushWork(work.id, Opcode::kRdmaRead, Status::kFlushed);
  }
  // Registered memory stays until the queue pair is destroyed: the device may still be at it.
  waiting_.clear();
  reads_posted_.clear();
  reads_waiting_.clear();
  wanted_ = 0;
  unsent_ = 0;
}

}  // namespace sdp::ibv
