#ifndef SDP_CORE_ENGINE_ADVERT_ANSWERS_H_
#define SDP_CORE_ENGINE_ADVERT_ANSWERS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "core/engine/flow_modes.h"
#include "core/engine/status.h"
#include "core/wire/headers.h"

namespace sdp::engine {

// The peer's advertisements and our answers to them. A SrcAvail (we are the Data Sink, SDP 9.2) gets RDMA
// Reads and RdmaRdCompl, or SendSm. A SinkAvail (we are the Data Source, 9.3) gets RDMA Writes and
// RdmaWrCompl, or Data (9.5.1, 9.5.2.2). Handles both kinds of cancel, too (9.5.4, 9.5.5).
class AdvertAnswers {
 public:
  // `read_zcopy`: SrcAvails wait for a reader; otherwise each is answered with SendSm.
  explicit AdvertAnswers(uint16_t max_adverts, bool read_zcopy = false)
      : max_adverts_(max_adverts), read_zcopy_(read_zcopy) {}

  // --- as Data Sink
  // `overridden`: an outstanding SinkAvail of ours discards this SrcAvail (11.3, 2b).
  AbortReason HandleSrcAvail(const wire::SrcAvail& advert, uint32_t payload, FlowMode sink_mode,
                             bool overridden = false);
  // Checks payload of any message: the peer may be forbidden to send it before our answer (11.2, 11.3).
  AbortReason HandlePayload(uint32_t payload);
  void HandleSrcAvailCancel();
  // Checks the peer's DisConn, with which the peer says that it has sent everything.
  [[nodiscard]] AbortReason HandleDisConn() const;
  [[nodiscard]] bool unanswered() const { return !src_avails_.empty(); }
  // Returns true if no SrcAvail waits for its answer, and the peer owes no Data for a SendSm.
  [[nodiscard]] bool sink_idle() const { return src_avails_.empty() && owed_ == 0 && !cancelled_; }
  // Has all waiting SrcAvails answered with SendSm, as soon as the bytes read of them are acknowledged.
  void ForceBcopy() {
    if (!cancelling_) forced_ = static_cast<uint32_t>(src_avails_.size());
  }
  // Starts no more reads, and has In-Process reads acknowledged, before a suspension (13.1.1).
  void Settle() { settling_ = true; }
  // Forgets all advertisements, because the connection is over: none can be used or answered any more.
  void Lapse() {
    src_avails_.clear();
    sink_avails_.clear();
    forced_ = 0;
    cancelling_ = cancelled_ = false;
    writing_ = wr_compl_due_ = cancelling_writes_ = sink_cancel_ack_due_ = false;
  }
  // Returns true if neither end has anything of the other's to use, to answer or to send.
  [[nodiscard]] bool idle() const {
    return sink_idle() && sink_avails_.empty() && !sink_cancel_ack_due_ && !writing_ && !wr_compl_due_;
  }
  // Returns how many bytes of the oldest SrcAvail a reader may have now.
  [[nodiscard]] uint32_t readable() const {
    if (src_avails_.empty() || forced_ != 0 || cancelling_ || settling_ || owed_ != 0) return 0;
    return src_avails_[0].left - src_avails_[0].posted;
  }
  [[nodiscard]] uint64_t advertised_bytes() const;
  [[nodiscard]] STag stag() const { return src_avails_[0].stag; }
  [[nodiscard]] uint64_t va() const { return src_avails_[0].va + src_avails_[0].posted; }
  [[nodiscard]] bool reading() const {
    return !src_avails_.empty() && src_avails_[0].posted != src_avails_[0].done;
  }
  // Returns true if no more of the oldest SrcAvail will be read for now.
  [[nodiscard]] bool stopped() const { return cancelling_ || settling_ || forced_ != 0; }
  void ReadPosted(uint32_t length) { src_avails_[0].posted += length; }
  void ReadCompleted(uint32_t length) { src_avails_[0].done += length; }
  // Returns true if reads of the oldest SrcAvail were posted and not yet acknowledged: it is In-Process.
  [[nodiscard]] bool in_process() const { return !src_avails_.empty() && src_avails_[0].posted != 0; }
  [[nodiscard]] bool rd_compl_due() const;
  struct RdCompl {
    uint32_t size = 0;
    bool last = false;  // completes its SrcAvail
    STag stag{};
  };
  RdCompl TakeRdCompl();
  [[nodiscard]] bool send_sm_due() const { return cancelled_ || (forced_ != 0 && !in_process()); }
  void SendSmTaken();
  // Returns true if a cancel waits for what is In-Process: MSeqAck stays below the cancel (9.5.4).
  [[nodiscard]] bool cancelling() const { return cancelling_; }

  // Returns how many of the peer's SrcAvails and SinkAvails are not answered yet.
  [[nodiscard]] uint32_t outstanding() const {
    return static_cast<uint32_t>(src_avails_.size() + sink_avails_.size());
  }

  // --- as Data Source
  AbortReason HandleSinkAvail(const wire::SinkAvail& advert, FlowMode source_mode, bool leaving_pipelined);
  void HandleSinkAvailCancel();
  [[nodiscard]] bool sink_cancel_ack_due() const { return sink_cancel_ack_due_; }
  void SinkCancelAckTaken() { sink_cancel_ack_due_ = false; }
  [[nodiscard]] bool has_sink_avail() const { return !sink_avails_.empty() && !writing_ && !wr_compl_due_; }
  [[nodiscard]] const wire::SinkAvail& sink_avail() const { return sink_avails_[0]; }
  void WritePosted() { writing_ = true; }
  [[nodiscard]] bool writing() const { return writing_ || wr_compl_due_; }
  void WriteCompleted(uint32_t size);
  [[nodiscard]] bool wr_compl_due() const { return wr_compl_due_; }
  // Takes the RdmaWrCompl that leaves: returns its Len and the STag to invalidate.
  RdCompl TakeWrCompl();
  void PayloadSent();
  // Drops the SinkAvails when our DisConn has left: they are useless then, and do not count.
  void SourceClosed() {
    sink_avails_.clear();
    source_closed_ = true;
  }
  // Drops the incomplete SinkAvails on leaving Pipelined Mode, and returns their number (12.4).
  size_t LeftPipelined();
  // 12.4: returns true if the last SinkAvail, ignored while we left Pipelined Mode, had crossed no payload of
  // ours.
  [[nodiscard]] bool ignored_was_fresh() const { return ignored_was_fresh_; }

 private:
  friend struct Frozen;

  struct Src {
    uint32_t left = 0;    // bytes not acknowledged, from `va` on
    uint32_t posted = 0;  // bytes for which RDMA Reads were posted
    uint32_t done = 0;    // bytes that have been read
    STag stag{};
    uint64_t va = 0;
  };

  void DiscardStale();

  uint16_t max_adverts_;  // what our Hello or HelloAck allows the peer
  bool read_zcopy_;
  // --- SrcAvails that are not answered, oldest first.
  absl::InlinedVector<Src, 1> src_avails_;
  uint32_t forced_ = 0;      // how many, from the oldest, get a SendSm
  bool cancelling_ = false;  // SrcAvailCancel has come; the oldest is In-Process
  bool dropped_ = false;     // the SrcAvailCancel discarded others
  bool settling_ = false;
  bool cancelled_ = false;  // SrcAvails were discarded: one SendSm for all of them
  uint64_t owed_ = 0;       // bytes the peer has to send as Data, by the SendSms that left
  // A SrcAvailCancel crossed the last SendSm: the peer may send what it owes, or have taken it back.
  bool forgiven_ = false;
  // --- SinkAvails that are neither stale nor used, oldest first.
  absl::InlinedVector<wire::SinkAvail, 1> sink_avails_;
  bool writing_ = false;       // an RDMA Write to the oldest is under way
  bool wr_compl_due_ = false;  // the oldest is written
  uint32_t written_ = 0;
  bool cancelling_writes_ = false;  // SinkAvailCancel has come; the oldest is In-Process
  bool dropped_sinks_ = false;
  bool sink_cancel_ack_due_ = false;
  bool source_closed_ = false;
  uint32_t potential_non_discards_ = 0;
  uint32_t potential_when_left_ = 0;  // its value when the ModeChange out of Pipelined Mode left
  bool ignored_was_fresh_ = false;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_ADVERT_ANSWERS_H_
