#include "verbs/ibv/link_reader.h"

#include "verbs/ibv/uncancelled.h"

namespace sdp::ibv {
namespace {

using verbs::LinkEnd;
using verbs::ReadStatus;

// Of the polls that find the completion queues empty, one in so many also looks at the connection, by a
// system call.
constexpr uint32_t kPollsPerLook = 16;

}  // namespace

LinkReader::LinkReader(Resources& resources, const std::string& device, Arming& arming, Ending& ending,
                       Completed& completed, Received& received, Sends& sends, verbs::QpCounters& counters)
    : resources_(resources),
      device_(device),
      arming_(arming),
      ending_(ending),
      completed_(completed),
      received_(received),
      sends_(sends),
      counters_(counters) {}

ReadStatus LinkReader::ReadLink() {
  // Arm for all receives first, whatever this read finds: the caller may sleep after it.
  if (arming_.armed_for_solicited()) arming_.ArmReceives(Awaited::kAll);
  return Read(Awaited::kAll);
}

// Where the device reports all Sends alike, queues that are armed need no further look.
ReadStatus LinkReader::ReadForSolicited() {
  if (resources_.tells_solicited) return Read(Awaited::kSolicited);
  return may_sleep() ? ReadStatus::kWouldBlock : Read(Awaited::kAll);
}

ReadStatus LinkReader::Read(Awaited awaited) {
  if (ending_.ended()) return ReadStatus::kEnded;
  bool progress = TakeCompleted();
  if (!progress) {
    // Take an event that is known to be due without a look at other descriptors: it would end the sleep that
    // follows.
    if (arming_.event_due()) {
      counters_.read_calls += arming_.TakeEvents();
    } else {
      progress = TakeEvents();
    }
    arming_.ArmReceives(awaited);
    if (sends_.awaits_completion()) arming_.ArmSends();
    // No event reports what completed before the queues were armed, so take all of that now.
    while (received_.Poll()) progress = true;
    progress |= sends_.Poll();
  }
  return Finish(progress);
}

// The queues stay armed if they were. An event that they send waits for the next ReadLink(), and ends any
// sleep before it.
ReadStatus LinkReader::PollLink(PollFor /*wanted*/) {
  if (ending_.ended()) return ReadStatus::kEnded;
  bool progress = TakeCompleted();
  if (progress) {
    idle_polls_ = 0;
  } else if (++idle_polls_ % kPollsPerLook == 0) {
    ++counters_.read_calls;
    progress = TakeConnectionEvents(resources_.Look());
  }
  return Finish(progress);
}

bool LinkReader::TakeCompleted() {
  const bool received = received_.Poll();
  return sends_.Poll() || received;
}

ReadStatus LinkReader::Finish(bool progress) {
  if (ending_.broken() && !ending_.ended()) {
    TakeAll();
    sends_.EndByFailure();
  }
  if (ending_.ended()) return ReadStatus::kEnded;
  if (progress && (sends_.has_waiting() || ending_.disconnect_asked())) sends_.Flush();
  return progress ? ReadStatus::kProgress : ReadStatus::kWouldBlock;
}

// No event would report a completion that was taken but not yet polled.
bool LinkReader::may_sleep() {
  return !ending_.ended() && !ending_.broken() && arming_.armed_for_all_receives() && !arming_.event_due() &&
         completed_.empty() && (arming_.sends_armed() || !sends_.awaits_completion());
}

bool LinkReader::has_untold() const {
  return !completed_.empty() || arming_.armed_for_solicited() || (ending_.broken() && !ending_.ended());
}

bool LinkReader::TakeEvents() {
  ++counters_.read_calls;
  const Resources::Woken woken = resources_.Look();
  const bool any = TakeConnectionEvents(woken);
  if (woken.completions) counters_.read_calls += arming_.TakeEvents();
  return any;
}

bool LinkReader::TakeConnectionEvents(const Resources::Woken& woken) {
  bool any = false;
  while (woken.connection_manager) {
    const Uncancelled uncancelled;
    rdma_cm_event* const event = resources_.NextCmEvent();
    if (event == nullptr) break;
    any = true;
    TakeAll();
    HandleCmEvent(*event);
    resources_.api.rdma_ack_cm_event(event);
  }
  if (resources_.device_failure() != nullptr && !ending_.ended()) {
    any = true;
    TakeAll();
    ending_.NoteDeviceFailure();
    // The device has not necessarily ended the connection, and the peer must see a reset.
    sends_.Abort();
  }
  return any;
}

void LinkReader::TakeAll() {
  received_.PollAll();
  sends_.Poll();
}

void LinkReader::HandleCmEvent(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_DISCONNECTED:
      if (ending_.EndByPeer()) sends_.FlushWork();
      return;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      if (ending_.End(LinkEnd::kFailed, "the RDMA device " + device_ + " was removed")) sends_.FlushWork();
      return;
    default:  // ESTABLISHED of the accepting side, TIMEWAIT_EXIT
      return;
  }
}

}  // namespace sdp::ibv
