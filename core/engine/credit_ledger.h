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
  kControl,  // any other message without ULP payload
  kPayload,
};

// Sequence numbers and credit of both directions (SDP 6.1.3, 6.1.5, 6.1.6, 10.1 to 10.5).
//
// Messages are counted in 64 bits from zero, so that the n-th message has MSeq n mod 2^32. Credit is kept as
// a limit: the number of messages that may be sent over the connection's life. The draft's credit = Bufs -
// WrapSubtract(LSSeq, MSeqAck) is then limit - sent, with limit = Bufs + messages acknowledged.
//
// MSeqAck 0 has two meanings: nothing received yet, or message 0 received. The draft's formula takes it for
// the latter. That grants one credit too many when a peer sends before it has received anything, and the last
// reserve would overrun the buffers. This ledger takes it for the former until the peer's Bufs or a later
// MSeqAck decides, and allows for a peer that does so, too.
class CreditLedger {
 public:
  // 10.5: credits that carry no payload.
  static constexpr uint32_t kReserve = 2;

  // `exchanged`: how many messages went each way before, all acknowledged. Near a multiple of 2^32 MSeq
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
  void HelloAckTook();              // ours left as a Send, took a buffer of the peer's, and has no MSeq
  void HelloAckTaken();             // the peer's arrived as a Send, and took a buffer of ours

  // --- receiving
  // Checks MSeq, MSeqAck, Bufs and the use of credit. kNone: the message is good.
  [[nodiscard]] AbortReason Judge(const wire::Bsdh& bsdh, MessageKind kind) const;
  // Judges the message, and counts it if it is good.
  AbortReason HandleMessage(const wire::Bsdh& bsdh, MessageKind kind);
  // Counts a message that Judge() has found good.
  void Take(const wire::Bsdh& bsdh, MessageKind kind);
  void Post(uint32_t count) { posted_ += count; }
  [[nodiscard]] uint32_t posted() const { return posted_; }

  // 9.5.4: for a SrcAvailCancel just received that cannot be answered yet. MSeqAck stays below it until
  // ReleaseAck().
  void HoldAck() { held_ = received_ - 1; }
  void ReleaseAck() {
    held_.reset();
    others_received_ = true;  // not acknowledged yet
  }
  // While MSeqAck is held the peer counts the later messages as if they occupied buffers. Posting that many
  // more receives keeps its credit; otherwise each peer may wait for the other.
  static constexpr uint32_t kMostBehind = 256;
  [[nodiscard]] uint32_t behind_held_ack() const {
    return held_ ? static_cast<uint32_t>(std::min<uint64_t>(received_ - *held_, kMostBehind)) : 0;
  }
  [[nodiscard]] bool ack_held() const { return held_.has_value(); }
  // Tells whether a SrcAvailCancel of ours is unanswered: then the peer's MSeqAck may lag behind its Bufs.
  void set_ack_may_lag(bool value) { ack_may_lag_ = value; }

  // --- sending
  // Returns Bufs, MSeq and MSeqAck of the message that leaves now. The caller sets Len, Flags and MID.
  wire::Bsdh Stamp(MessageKind kind);
  [[nodiscard]] uint32_t credits() const { return static_cast<uint32_t>(limit_ - sent_); }
  // 10.5: three credits for any message, two for one without payload, one for one that also gives credit.
  [[nodiscard]] uint32_t payload_messages() const { return credits() > 2 ? credits() - 2 : 0; }
  [[nodiscard]] bool may_send_control() const { return credits() >= 2 || (credits() == 1 && gain() > 0); }
  // Returns the credit that the peer gains when it learns of the receives posted now.
  [[nodiscard]] uint32_t gain() const { return static_cast<uint32_t>(LimitToTell() - told_limit_); }
  // Returns true if a gratuitous update must leave. `idle`: no received data is held, so no more receives
  // will be posted by themselves. `writer_expected`: payload will leave as soon as credit allows, and tells
  // the peer as well. `answer_expected`: the peer owes an answer, and may lack the credit for it.
  [[nodiscard]] bool update_due(uint32_t window, bool idle, bool writer_expected, bool answer_expected) const;
  // False: no update is due, whatever else holds. The peer knows of credit for payload, and the news is less
  // than half a window. So it is behind nearly every message.
  [[nodiscard]] bool update_may_be_due(uint32_t window) const {
    return told_limit_ <= received_ + kReserve || gain() >= (window + 1) / 2;
  }
  // Returns true if an update should ask for credit: this side has payload and two credits, and the peer may
  // not know that it lacks the third.
  [[nodiscard]] bool nudge_due() const;
  void NudgeTaken() { nudged_ = sent_; }
  // Returns true if both windows are shut to the reserve, and updates have answered updates for long enough.
  // With one receive more than the reserve the peer learns of two credits and can answer. Both then keep two.
  [[nodiscard]] bool echo_over() const;

  // Returns Bufs of the peer's Hello or HelloAck.
  [[nodiscard]] uint32_t peer_initial() const { return peer_initial_; }
  [[nodiscard]] uint64_t sent() const { return sent_; }
  [[nodiscard]] uint64_t acknowledged() const { return acknowledged_; }
  // Returns true if gratuitous updates, which carry nothing of the stream, are unacknowledged, and no others.
  [[nodiscard]] bool only_updates_unacknowledged() const {
    return acknowledged_ < sent_ && acknowledged_ >= sent_before_updates_;
  }
  // The link has ended before all of the stream was sent: what is unacknowledged is more than updates.
  void NoteLoss() { sent_before_updates_ = sent_; }
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
  // Returns how many of our messages the peer has not seen, by its MSeqAck. Needs sent().
  [[nodiscard]] uint32_t Unacknowledged(const wire::Bsdh& bsdh) const {
    return static_cast<uint32_t>(sent_ - 1) - bsdh.mseq_ack.value();
  }
  // Returns true if that MSeqAck may be 0 for want of a message. Needs sent().
  [[nodiscard]] bool IsAmbiguous(const wire::Bsdh& bsdh) const;
  void TakeAcknowledgement(const wire::Bsdh& bsdh);

  friend struct Frozen;

  Role role_;

  // Sending.
  uint64_t sent_ = 0;
  uint64_t acknowledged_ = 0;  // messages that the peer has certainly received
  uint64_t limit_ = 0;
  uint64_t sent_before_updates_ = 0;  // sent_ after the last message that was more than an update
  uint64_t nudged_ = 0;               // sent_ after the last nudge
  uint32_t peer_initial_ = 0;
  bool ack_may_lag_ = false;
  bool ack_ambiguous_ = false;  // the peer's last MSeqAck was 0 and is ambiguous

  // Receiving.
  uint32_t posted_ = 0;
  uint32_t initial_posted_ = 0;
  uint64_t received_ = 0;
  std::optional<uint64_t> held_;   // what MSeqAck acknowledges instead of received_
  uint64_t told_limit_ = 0;        // the peer's limit_ once everything we sent has arrived
  uint64_t formula_limit_ = 0;     // the most that the draft's own formula can make of what we sent
  bool told_first_ = false;        // the peer knows that we have message 0
  uint32_t updates_received_ = 0;  // since our last message
  bool others_received_ = false;   // other messages, since our last message
  bool crossed_ = false;           // an update left the peer before all of ours had arrived
  uint32_t answered_updates_ = 0;  // updates sent in a row only because of the peer's updates
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_CREDIT_LEDGER_H_
