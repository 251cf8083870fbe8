#ifndef SDP_CORE_ENGINE_ADVERT_ANSWERS_H_
#define SDP_CORE_ENGINE_ADVERT_ANSWERS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "core/engine/flow_modes.h"
#include "core/engine/status.h"
#include "core/wire/headers.h"

namespace sdp::engine {

// The peer's advertisements, all answered by forcing Bcopy: SrcAvail with SendSm (SDP 9.2, 9.5.2.1),
// SinkAvail by sending Data (9.5.1, 9.5.2.2), and both kinds of cancel (9.5.4, 9.5.5). Neither RDMA Read nor
// RDMA Write is ever started, so nothing is In-Process.
class AdvertAnswers {
 public:
  explicit AdvertAnswers(uint16_t max_adverts) : max_adverts_(max_adverts) {}

  // --- as Data Sink
  AbortReason HandleSrcAvail(const wire::SrcAvail& advert, uint32_t payload, FlowMode sink_mode);
  // Payload of any message: may the peer send it while it waits for our SendSm (11.2, 11.3)?
  AbortReason HandlePayload(uint32_t payload);
  void HandleSrcAvailCancel();
  // The peer says that it has sent everything.
  [[nodiscard]] AbortReason HandleDisConn() const;
  [[nodiscard]] bool unanswered() const { return !src_avails_.empty(); }
  [[nodiscard]] bool send_sm_due() const { return cancelled_ || !src_avails_.empty(); }
  void SendSmTaken();

  // --- as Data Source
  AbortReason HandleSinkAvail(const wire::SinkAvail& advert, FlowMode source_mode, bool leaving_pipelined);
  void HandleSinkAvailCancel();
  [[nodiscard]] bool sink_cancel_ack_due() const { return sink_cancel_ack_due_; }
  void SinkCancelAckTaken() { sink_cancel_ack_due_ = false; }
  void PayloadSent();
  void LeftPipelined();

 private:
  friend struct Frozen;

  void DiscardStale();

  uint16_t max_adverts_;  // what our Hello or HelloAck allows the peer
  // Bytes that a SrcAvail leaves to send after its payload, oldest first, for each that has no SendSm yet.
  absl::InlinedVector<uint32_t, 2> src_avails_;
  bool cancelled_ = false;  // SrcAvails were discarded: one SendSm for all of them
  uint64_t owed_ = 0;       // bytes the peer has to send as Data, by the SendSms that left
  // A SrcAvailCancel crossed the last SendSm: the peer may send what is owed, or have taken it back.
  bool forgiven_ = false;
  // NonDiscards of each SinkAvail that is neither stale nor used.
  absl::InlinedVector<uint32_t, 2> sink_avails_;
  bool sink_cancel_ack_due_ = false;
  uint32_t potential_non_discards_ = 0;
  uint32_t potential_when_left_ = 0;  // its value when the ModeChange out of Pipelined Mode left
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_ADVERT_ANSWERS_H_
