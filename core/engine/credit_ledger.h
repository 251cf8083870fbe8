#ifndef SDP_CORE_ENGINE_CREDIT_LEDGER_H_
#define SDP_CORE_ENGINE_CREDIT_LEDGER_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/engine/options.h"
#include "core/engine/status.h"
#include "core/wire/bsdh.h"

namespace sdp::engine {

// What a message means for credit.
enum class MessageKind : uint8_t {
  kUpdate,   // a Data message without payload or flags: nothing but a gratuitous update (10.4)
  kControl,  // any other without ULP payload
  kPayload,
};

// Sequence numbers and credit of both directions (SDP 6.1.3, 6.1.5, 6.1.6, 10.1 to 10.5).
//
// Messages are counted in 64 bits from zero, so that the n-th message has MSeq n mod 2^32. Credit is kept as
// a limit: the number of messages that may be sent over the connection's life. The draft's credit = Bufs -
// WrapSubtract(LSSeq, MSeqAck) is then limit - sent, with limit = Bufs + messages acknowledged.
//
// MSeqAck 0 says two things: nothing received yet, or message 0 received. Taking it for the latter, as the
// formula does, grants one credit that is not there when a peer that has heard nothing sends first, and the
// last reserve would overrun it. We take it for the former until the peer's Bufs or a later MSeqAck tells,
// and account for a peer that does the same.
class CreditLedger {
 public:
  // 10.5: credits that carry no payload.
  static constexpr uint32_t kReserve = 2;

  // `exchanged`: so many messages have gone each way before, all acknowledged; near a multiple of 2^32 MSeq
  // wraps.
  explicit CreditLedger(Role role, uint64_t exchanged = 0)
      : role_(role),
        sent_(exchanged),
        acknowledged_(exchanged),
        sent_before_updates_(exchanged),
        received_(exchanged) {}

  // --- set-up
  void SetPosted(uint32_t count);   // receive Private Buffers posted before our Hello or HelloAck
  void SetPeerBufs(uint16_t bufs);  // Bufs of the peer's Hello or HelloAck
  void HelloAckTook();              // it left as a Send: it took one of the peer's buffers, without an MSeq
  void HelloAckTaken();             // it arrived as a Send: it took one of ours

  // --- receiving
  // Checks MSeq, MSeqAck, Bufs and the use of credit, and counts the message. kNone: the message is good.
  AbortReason HandleMessage(const wire::Bsdh& bsdh, MessageKind kind);
  void Post(uint32_t count) { posted_ += count; }
  [[nodiscard]] uint32_t posted() const { return posted_; }

  // 9.5.4: the message just received is a SrcAvailCancel that cannot be answered yet. MSeqAck stays below it
  // until Release.
  void HoldAck() { held_ = received_ - 1; }
  void ReleaseAck() {
    held_.reset();
    others_received_ = true;  // not acknowledged yet
  }
  // While MSeqAck stands still the peer counts the messages behind it as if they occupied buffers: so many
  // more have to be posted for it to keep its credit, or both may wait for the other's.
  static constexpr uint32_t kMostBehind = 256;
  [[nodiscard]] uint32_t behind_held_ack() const {
    return held_ ? static_cast<uint32_t>(std::min<uint64_t>(received_ - *held_, kMostBehind)) : 0;
  }
  [[nodiscard]] bool ack_held() const { return held_.has_value(); }
  // A SrcAvailCancel of ours is unanswered: the peer's MSeqAck may lag behind its Bufs.
  void set_ack_may_lag(bool value) { ack_may_lag_ = value; }

  // --- sending
  // Bufs, MSeq and MSeqAck of the message that leaves now; Len, Flags and MID are the caller's.
  wire::Bsdh Stamp(MessageKind kind);
  [[nodiscard]] uint32_t credits() const { return static_cast<uint32_t>(limit_ - sent_); }
  // 10.5: three credits for any message, two for one without payload, one for one that also gives credit.
  [[nodiscard]] uint32_t payload_messages() const { return credits() > 2 ? credits() - 2 : 0; }
  [[nodiscard]] bool may_send_control() const { return credits() >= 2 || (credits() == 1 && gain() > 0); }
  // Credit the peer gains when it hears of what is posted now.
  [[nodiscard]] uint32_t gain() const { return static_cast<uint32_t>(LimitToTell() - told_limit_); }
  // A gratuitous update has to leave. `idle`: nothing received is held back, no more receives will be posted
  // by themselves.
  // `writer_expected`: payload will leave as soon as credit allows, and tell the peer as well.
  // `answer_expected`: the peer owes us an answer, and may lack the credit for it.
  [[nodiscard]] bool update_due(uint32_t window, bool idle, bool writer_expected, bool answer_expected) const;
  // We have payload, two credits, and a peer that may not know that we lack the third: an update makes it
  // tell us.
  [[nodiscard]] bool nudge_due() const;
  void NudgeTaken() { nudged_ = sent_; }
  // Both windows are shut to the reserve, and updates have answered updates for nothing long enough: with one
  // more receive than the reserve the peer is told of two credits, can answer, and both are left with two.
  [[nodiscard]] bool echo_over() const;

  [[nodiscard]] uint32_t peer_initial() const {
    return peer_initial_;
  }  // Bufs of the peer's Hello or HelloAck
  [[nodiscard]] uint64_t sent() const { return sent_; }
  [[nodiscard]] uint64_t acknowledged() const { return acknowledged_; }
  [[nodiscard]] bool IsConsistent() const;

 private:
  [[nodiscard]] uint64_t LimitToTell() const {
    if (held_) return std::max(told_limit_, posted_ + *held_);
    return AckIsAmbiguous() ? std::max<uint64_t>(told_limit_, posted_) : posted_ + received_;
  }
  [[nodiscard]] bool AckIsAmbiguous() const {
    return received_ == 1 && !told_first_ && posted_ >= initial_posted_;
  }
  [[nodiscard]] bool answered_enough() const;
  AbortReason HandleAcknowledgement(const wire::Bsdh& bsdh);

  friend struct Frozen;

  Role role_;

  // Our sending.
  uint64_t sent_ = 0;
  uint64_t acknowledged_ = 0;  // of sent_, received by the peer for certain
  uint64_t limit_ = 0;
  uint64_t sent_before_updates_ = 0;  // sent_ after the last message that was more than an update
  uint64_t nudged_ = 0;               // sent_ after the last nudge
  uint32_t peer_initial_ = 0;
  bool ack_may_lag_ = false;
  bool ack_ambiguous_ = false;  // the peer's last MSeqAck was 0 and may mean either

  // Our receiving.
  uint32_t posted_ = 0;
  uint32_t initial_posted_ = 0;
  uint64_t received_ = 0;
  std::optional<uint64_t> held_;   // what MSeqAck acknowledges instead of received_
  uint64_t told_limit_ = 0;        // the peer's limit_, when everything we sent has arrived
  uint64_t formula_limit_ = 0;     // the most that the draft's own formula can make of what we sent
  bool told_first_ = false;        // the peer knows that we have message 0
  uint32_t updates_received_ = 0;  // since we last sent anything
  bool others_received_ = false;   // likewise
  bool crossed_ = false;           // one of them left before all that we had sent arrived
  uint32_t answered_updates_ = 0;  // updates sent for no other reason than the peer's updates, in a row
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_CREDIT_LEDGER_H_
