#include "core/engine/credit_ledger.h"

#include <algorithm>

#include "core/base/check.h"

namespace sdp::engine {
namespace {

// When both windows are shut down to the reserve, an update costs its sender the credit that the other peer
// must then restore by an update. To the letter, 10.5 keeps two idle peers talking for ever. After so many
// rounds in which nothing else happened, a third receive of the accepting peer's ends that; see echo_over().
// If it does not, one of the connecting peer's follows (at both ends at once it would not help). A peer whose
// memory does not allow it stays silent until something happens. An open window needs no such end, because
// only two updates of the peer's call for one of ours.
constexpr uint32_t kMaxAnsweredUpdates[] = {/*connecting*/ 16, /*accepting*/ 8};

}  // namespace

void CreditLedger::SetPosted(uint32_t count) {
  posted_ = initial_posted_ = count;
  told_limit_ = formula_limit_ = received_ + count;
}

void CreditLedger::SetPeerBufs(uint16_t bufs) {
  peer_initial_ = bufs;
  limit_ = sent_ + bufs;
}

void CreditLedger::HelloAckTook() {
  --limit_;
  --peer_initial_;
}

void CreditLedger::HelloAckTaken() {
  --posted_;
  --initial_posted_;
  --told_limit_;
  --formula_limit_;
}

AbortReason CreditLedger::Judge(const wire::Bsdh& bsdh, MessageKind kind) const {
  if (posted_ == 0) return AbortReason::kCreditOverrun;
  if (bsdh.mseq.value() != static_cast<uint32_t>(received_)) return AbortReason::kBadSequence;
  // 10.5: the last two credits carry no payload. The credit granted last is the most that the peer can know
  // of.
  if (kind == MessageKind::kPayload && formula_limit_ < received_ + 3) return AbortReason::kCreditOverrun;
  if (sent_ == 0) return bsdh.mseq_ack.value() == 0 ? AbortReason::kNone : AbortReason::kBadAcknowledgement;
  if (Unacknowledged(bsdh) >= sent_ || sent_ - Unacknowledged(bsdh) < acknowledged_)
    return AbortReason::kBadAcknowledgement;
  // Bufs counts buffers posted less those used (6.1.3): its sum with the messages received never shrinks.
  const bool shrinks = bsdh.bufs + sent_ - Unacknowledged(bsdh) < limit_;
  return shrinks && !ack_may_lag_ && !IsAmbiguous(bsdh) ? AbortReason::kBadCredit : AbortReason::kNone;
}

AbortReason CreditLedger::HandleMessage(const wire::Bsdh& bsdh, MessageKind kind) {
  const AbortReason reason = Judge(bsdh, kind);
  if (reason == AbortReason::kNone) Take(bsdh, kind);
  return reason;
}

void CreditLedger::Take(const wire::Bsdh& bsdh, MessageKind kind) {
  TakeAcknowledgement(bsdh);
  ++received_;
  --posted_;
  if (kind == MessageKind::kUpdate) {
    ++updates_received_;
    crossed_ = crossed_ || acknowledged_ < sent_;
  } else {
    answered_updates_ = 0;
    others_received_ = true;
  }
}

bool CreditLedger::IsAmbiguous(const wire::Bsdh& bsdh) const {
  return sent_ - Unacknowledged(bsdh) == 1 && acknowledged_ == 0 && bsdh.bufs >= peer_initial_;
}

void CreditLedger::TakeAcknowledgement(const wire::Bsdh& bsdh) {
  ack_ambiguous_ = sent_ != 0 && IsAmbiguous(bsdh);
  if (sent_ != 0 && !ack_ambiguous_) acknowledged_ = sent_ - Unacknowledged(bsdh);
  limit_ = std::max(limit_, bsdh.bufs + acknowledged_);
}

wire::Bsdh CreditLedger::Stamp(MessageKind kind) {
  SDP_CHECK(credits() > 0);
  const bool only_answers = kind == MessageKind::kUpdate && gain() <= updates_received_;
  answered_updates_ = only_answers ? answered_updates_ + 1 : 0;
  told_limit_ = LimitToTell();
  formula_limit_ = std::max(formula_limit_, posted_ + std::max<uint64_t>(received_, 1));
  if (received_ > 0 && !AckIsAmbiguous()) told_first_ = true;
  updates_received_ = 0;
  others_received_ = false;
  crossed_ = false;
  const uint32_t mseq = static_cast<uint32_t>(sent_++);
  if (kind != MessageKind::kUpdate) sent_before_updates_ = sent_;
  return {.bufs = static_cast<uint16_t>(posted_),
          .mseq = MSeq(mseq),
          .mseq_ack = MSeq(received_ == 0 ? 0 : static_cast<uint32_t>(held_.value_or(received_) - 1))};
}

bool CreditLedger::update_due(uint32_t window, bool idle, bool writer_expected, bool answer_expected) const {
  if (credits() == 0 || gain() == 0) return false;
  // A peer that counts by the bare formula may be one credit ahead of what we told it.
  const uint64_t peer_credits = told_limit_ > received_ ? told_limit_ - received_ : 0;
  // With more posted than the window (behind a held MSeqAck), Repost() does not replace every message's
  // buffer.
  const uint32_t least = others_received_ ? 1 : 0;
  const uint32_t worth = gain() > updates_received_ ? gain() - updates_received_ : least;
  // 10.5: at one credit or none the peer is told, whatever this side receives or not.
  if (peer_credits == 0) return true;
  // The peer is told again as long as the news lets it send payload. It may wait for just that, and then its
  // message about it is an update like any other.
  if (peer_credits == 1) {
    return worth > 0 || answer_expected || posted_ > kReserve || !answered_enough();
  }
  // At two credits the peer waits with its payload, and no rule obliges it to say so.
  if (peer_credits == 2 && worth == 0) {
    // The credit that lets our writer continue is not spent on an answer that would only ask for the next
    // one. No credit is spent either while the peer could not send payload even with the answer.
    const bool spared = writer_expected && !answer_expected && (credits() == 3 || posted_ <= kReserve);
    return role_ == Role::kAccepting && crossed_ && !spared;
  }
  if (peer_credits == 2 && worth > 0 && (idle || worth >= std::max(1u, window / 8))) return true;
  return worth >= std::max(1u, (window + 1) / 2);
}

bool CreditLedger::answered_enough() const {
  return answered_updates_ >= kMaxAnsweredUpdates[static_cast<size_t>(role_)];
}

bool CreditLedger::echo_over() const {
  return answered_enough() && posted_ <= kReserve && told_limit_ == received_ + 1;
}

bool CreditLedger::nudge_due() const {
  if (credits() != 2 || sent_ == acknowledged_) return false;
  // If both peers nudged at will, one update too many would always be under way. So the connecting peer waits
  // for the answer to its nudge, which the accepting peer always gives. The accepting peer nudges whenever it
  // must.
  if (role_ == Role::kConnecting && acknowledged_ < nudged_) return false;
  return sent_ == 1 || ack_ambiguous_ || acknowledged_ >= sent_before_updates_;
}

bool CreditLedger::IsConsistent() const {
  return sent_ <= limit_ && acknowledged_ <= sent_ && limit_ - sent_ <= 65535u && posted_ <= 65535u &&
         LimitToTell() >= told_limit_;
}

}  // namespace sdp::engine
