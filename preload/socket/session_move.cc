// A Session whose peer has asked for Socket Duplication (SDP 13). The engine finishes what is In-Process, and
// answers. This file leaves the link, connects anew where the peer says, and continues with another queue
// pair.
#include <errno.h>

#include <algorithm>
#include <utility>

#include "preload/allowed_calls.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/options.h"
#include "preload/socket/session.h"

namespace sdp::preload {
namespace {

// For moves with no byte of the stream between them: the first few cost nothing, then each rests twice as
// long as the one before.
constexpr int kFreeMoves = 8;
constexpr Duration kFirstRest = std::chrono::milliseconds(10);
constexpr Duration kLongestRest = std::chrono::seconds(1);

Duration RestOf(int idle_moves) {
  if (idle_moves <= kFreeMoves) return {};
  return std::min(kLongestRest, kFirstRest * (1 << std::min(idle_moves - kFreeMoves - 1, 10)));
}

uint64_t Payload(const engine::Stats& s) {
  return s.bcopy_bytes_in + s.bcopy_bytes_out + s.read_zcopy_bytes_in + s.read_zcopy_bytes_out +
         s.write_zcopy_bytes_in + s.write_zcopy_bytes_out + s.transaction_bytes_in + s.transaction_bytes_out;
}

void Add(const verbs::QpCounters& more, verbs::QpCounters* sum) {
  sum->bytes_in += more.bytes_in;
  sum->bytes_out += more.bytes_out;
  sum->fpdus_in += more.fpdus_in;
  sum->fpdus_out += more.fpdus_out;
  sum->read_calls += more.read_calls;
  sum->write_calls += more.write_calls;
  sum->copied_out += more.copied_out;
  sum->placed_in += more.placed_in;
  sum->doorbells += more.doorbells;
}

}  // namespace

Time Session::move_deadline() const { return move_ != nullptr ? move_->deadline(Now()) : kNever; }

bool Session::MayMove() const { return !Confined(); }

void Session::StartMove() {
  kin_ = leaves_first_ = left_first_ = false;  // who has the connection next may be another program
  const uint64_t payload = Payload(engine_->stats());
  idle_moves_ = payload == payload_at_move_ ? idle_moves_ + 1 : 0;
  payload_at_move_ = payload;
  move_ = LinkMove::Begin(*queue_pair_, *engine_->suspended_port(), RestOf(idle_moves_), Now());
  moved_ = true;
}

void Session::BeginMove() {
  if (!MayMove()) return Abort();
  StartMove();
  if (move_->ends_in_order()) queue_pair_->Disconnect();
  Pump();
}

bool Session::LeadMove(const Address& peer) {
  changed_ = true;
  if (moving() && Confined()) {
    EndMove();
    return false;
  }
  if (move_ == nullptr && moving()) BeginMove();
  if (move_ == nullptr || move_->phase() != LinkMove::Phase::kLeft || being_read()) return false;
  const Time now = Now();
  if (move_->resting(now) && engine_->state() != engine::State::kAborted) return false;
  constexpr engine::Options kOwn;
  if (engine_->state() == engine::State::kAborted) {
    Abort();
    return false;
  }
  if (!engine_->Resume(kOwn.ird, kOwn.ord)) {
    if (move_->late(now)) FailMove(move_->Cause(ETIMEDOUT, "a call does not let go of its memory"));
    return false;
  }
  engine::Options options;
  options.receive_buffer_size = engine_->stats().local_buffer_size;
  options.receive_buffers = static_cast<uint16_t>(engine_->stats().posted_receives);
  move_->Connect(&queue_pair_, peer, engine_->Hello(), QpOptions(options), now);
  moved_ = true;
  Pump();
  return true;
}

void Session::EndMove() {
  if (!moving()) return;
  if (move_ == nullptr) return Abort();
  FailMove(move_->Cause(0, "a seccomp filter is in the way"));
}

bool Session::AdvanceMove() {
  changed_ = true;
  const LinkMove::Phase before = move_->phase();
  const bool went_on = TakeMoveStep();
  if (move_ == nullptr || move_->phase() != before) moved_ = true;
  return went_on;
}

bool Session::TakeMoveStep() {
  using Phase = LinkMove::Phase;
  const Time now = Now();
  if (move_->between_links() && engine_->state() == engine::State::kAborted) {
    Abort();
    return false;
  }
  if (Confined()) {
    EndMove();
    return false;
  }
  switch (move_->phase()) {
    case Phase::kLeft:
      return false;
    case Phase::kLeaving:
      if (!move_->MayLeave(*queue_pair_, now)) {
        if (move_->stuck(now)) FailMove(move_->Cause(ETIMEDOUT, "the peer does not take what is on its way"));
        return false;
      }
      if (!being_read()) {
        EndLink();
      } else {
        real.shutdown(queue_pair_->event_fd(), SHUT_RD);  // wakes that thread
      }
      return false;
    case Phase::kNewLink:
      return FinishMove(now);
    case Phase::kLink:
    case Phase::kHandshake:
    case Phase::kThere:
    case Phase::kFailed:
      break;
  }
  move_->Step(*queue_pair_, now);
  if (move_->phase() == Phase::kFailed) FailMove(move_->cause());
  return move_ != nullptr && move_->phase() == Phase::kThere && EnterNewLink();
}

bool Session::EnterNewLink() {
  Add(queue_pair_->counters(), &earlier_links_);
  queue_pair_ = move_->Take();
  const auto accepted = HandleReply(move_->hello(), move_->answer(), move_->speaks_first());
  if (!accepted) FailMove(move_->Cause(0, engine::ToString(accepted.error())));
  return accepted.has_value();
}

bool Session::FinishMove(Time now) {
  if (engine_->state() == engine::State::kHelloSent) {
    if (move_->late(now)) FailMove(move_->Cause(ETIMEDOUT, "no HelloAck came"));
    return false;
  }
  queue_pair_->SetOrd(engine_->ord());  // 8.1.1, 7d
  move_.reset();
  return true;
}

void Session::FailMove(verbs::LinkCause cause) {
  failure_ = std::move(cause);
  Abort();
}

verbs::QpCounters Session::link_counters() const {
  verbs::QpCounters sum = earlier_links_;
  Add(queue_pair_->counters(), &sum);
  return sum;
}

}  // namespace sdp::preload
