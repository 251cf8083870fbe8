#include "verbs/ibv/arming.h"

#include "verbs/ibv/uncancelled.h"

namespace sdp::ibv {

// A device that keeps an earlier request for all receives does not reduce it to solicited ones. So a request
// for solicited Sends does not prevent events for other Sends.
void Arming::ArmReceives(Awaited awaited) {
  const bool solicited = awaited == Awaited::kSolicited;
  if (receives_armed_ && for_solicited_ == solicited) return;
  receives_armed_ = true;
  for_solicited_ = solicited;
  ibv_req_notify_cq(resources_.receive_cq, solicited ? 1 : 0);
}

void Arming::ArmSends() {
  if (sends_armed_) return;
  sends_armed_ = true;
  ibv_req_notify_cq(resources_.send_cq, 0);
}

uint32_t Arming::TakeEvents() {
  event_due_ = false;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  uint32_t calls = 0;
  const Uncancelled uncancelled;
  while (receives_armed_ || sends_armed_) {
    ++calls;
    if (resources_.api.ibv_get_cq_event(resources_.completions, &queue, &context) != 0) break;
    (queue == resources_.receive_cq ? receives_armed_ : sends_armed_) = false;
    for_solicited_ = for_solicited_ && receives_armed_;
    resources_.api.ibv_ack_cq_events(queue, 1);
  }
  return calls;
}

}  // namespace sdp::ibv
