#ifndef SDP_CORE_ENGINE_SINK_OFFER_H_
#define SDP_CORE_ENGINE_SINK_OFFER_H_

#include <array>
#include <cstdint>
#include <optional>

#include "core/engine/action.h"
#include "core/engine/status.h"
#include "core/engine/vocabulary.h"
#include "core/wire/headers.h"

namespace sdp::engine {

// A receive buffer of the application's, where we are the Data Sink. RDMA Reads of one SrcAvail fill it (SDP
// 9.2), or SinkAvail advertises it and the peer writes it (9.3). Also counts NonDiscards (9.5.1).
class SinkOffer {
 public:
  static constexpr uint32_t kMaxReads = 4;  // RDMA Reads in flight

  void Begin(const SinkBuffer& buffer);
  [[nodiscard]] bool active() const { return active_; }
  [[nodiscard]] bool reading() const { return reads_ != 0; }
  [[nodiscard]] uint32_t reads() const { return reads_; }
  [[nodiscard]] bool advertised() const { return advertised_; }
  [[nodiscard]] bool wants_advertising() const {
    return active_ && !revoked_ && buffer_.advertise && !advertised_ && posted_ == 0 && !ack_expected_;
  }
  [[nodiscard]] bool cancel_due() const { return advertised_ && revoked_ && !cancel_; }
  [[nodiscard]] uint64_t size() const { return buffer_.data.size(); }
  // Returns how many bytes no read has been posted for.
  [[nodiscard]] uint64_t room() const { return active_ && !revoked_ && !advertised_ ? size() - posted_ : 0; }

  // Returns an RDMA Read of `length` bytes of `remote` at `va`, which counts as posted.
  PostRdmaRead Read(WorkId id, uint32_t length, STag remote, uint64_t va);
  // Completes the oldest read if it has this id, and returns how many bytes it brought; else returns 0.
  uint32_t ReadCompleted(WorkId id);

  wire::SinkAvail Advertise();
  void CancelTaken(uint64_t message) {
    cancel_ = message;
    ++cancels_;
  }
  AbortReason HandleRdmaWrCompl(uint32_t size, const std::optional<STag>& invalidated, uint64_t acknowledged);
  AbortReason HandleSinkCancelAck();
  // Handles a message with payload. It makes an advertised buffer stale (9.5.1, 1); otherwise it counts.
  void HandlePayload();
  // Notes that the peer is in Combined Mode and has discarded the advertisement (figure 29).
  void Unadvertise();
  void Revoke();
  // Moves the buffer to `data`, and revokes it. The reader gets the old memory; returns how much of it is
  // filled.
  uint64_t Move(MutableBytes data);
  [[nodiscard]] bool moved() const { return moved_; }
  [[nodiscard]] Bytes memory() const { return buffer_.data; }
  void Finish();
  std::optional<OfferResult> TakeResult();
  [[nodiscard]] bool has_result() const { return result_.has_value(); }
  [[nodiscard]] uint64_t filled() const { return filled_; }

 private:
  friend struct Frozen;

  struct Outstanding {
    uint32_t id = 0;  // the low half of a WorkId, enough for the few outstanding
    uint32_t length = 0;
  };

  SinkBuffer buffer_{};
  uint64_t posted_ = 0;
  uint64_t filled_ = 0;
  std::array<Outstanding, kMaxReads> outstanding_{};
  uint8_t reads_ = 0;
  bool active_ = false;
  bool revoked_ = false;
  bool moved_ = false;
  bool advertised_ = false;
  bool invalidated_ = false;
  bool ack_expected_ = false;       // a SinkCancelAck will certainly come; no SinkAvail before it (9.5.5)
  std::optional<uint64_t> cancel_;  // the message that carried the SinkAvailCancel
  std::optional<OfferResult> result_;
  // Counted over the connection's life.
  uint32_t non_discards_ = 0;
  uint32_t cancels_ = 0;  // SinkAvailCancels that a SinkCancelAck may yet answer
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_SINK_OFFER_H_
