#include "preload/socket/session_moves.h"

#include <errno.h>

#include <algorithm>
#include <utility>

#include "preload/confinement.h"
#include "preload/socket/clock.h"
#include "preload/socket/options.h"

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

Time Session::Moves::deadline() const { return m_.now != nullptr ? m_.now->deadline(Now()) : kNever; }

void Session::Moves::Start() {
  s_.kinship_.Forget();  // another program may have it next
  const uint64_t payload = Payload(s_.engine_->stats());
  m_.idle = payload == m_.payload_then ? m_.idle + 1 : 0;
  m_.payload_then = payload;
  m_.now = LinkMove::Begin(*s_.queue_pair_, *s_.engine_->suspended_port(), RestOf(m_.idle), Now());
  m_.stepped = true;
}

void Session::Moves::Begin() {
  if (Confined()) return s_.Abort();
  Start();
  if (m_.now->ends_in_order()) s_.queue_pair_->Disconnect();
  s_.Pump();
}

bool Session::Moves::Lead(const Address& peer) {
  s_.changed_ = true;
  if (s_.moving() && Confined()) {
    End();
    return false;
  }
  if (m_.now == nullptr && s_.moving()) Begin();
  if (m_.now == nullptr || m_.now->phase() != LinkMove::Phase::kLeft) return false;
  const Time now = Now();
  if (m_.now->resting(now) && s_.engine_->state() != engine::State::kAborted) return false;
  constexpr engine::Options kOwn;
  if (s_.engine_->state() == engine::State::kAborted) {
    s_.Abort();
    return false;
  }
  if (!s_.engine_->Resume(kOwn.ird, kOwn.ord)) {
    if (m_.now->late(now)) Fail(m_.now->Cause(ETIMEDOUT, "a call does not let go of its memory"));
    return false;
  }
  engine::Options options;
  options.receive_buffer_size = s_.engine_->stats().local_buffer_size;
  options.receive_buffers = static_cast<uint16_t>(s_.engine_->stats().posted_receives);
  m_.now->Connect(&s_.queue_pair_, peer, s_.engine_->Hello(), QpOptions(options), now);
  m_.stepped = true;
  s_.Pump();
  return true;
}

void Session::Moves::End() {
  if (!s_.moving()) return;
  if (m_.now == nullptr) return s_.Abort();
  Fail(m_.now->Cause(0, "a seccomp filter is in the way"));
}

bool Session::Moves::Advance() {
  s_.changed_ = true;
  const LinkMove::Phase before = m_.now->phase();
  const bool went_on = TakeStep();
  if (m_.now == nullptr || m_.now->phase() != before) m_.stepped = true;
  return went_on;
}

bool Session::Moves::TakeStep() {
  using Phase = LinkMove::Phase;
  const Time now = Now();
  if (m_.now->between_links() && s_.engine_->state() == engine::State::kAborted) {
    s_.Abort();
    return false;
  }
  if (Confined()) {
    End();
    return false;
  }
  switch (m_.now->phase()) {
    case Phase::kLeft:
      return false;
    case Phase::kLeaving:
      if (!m_.now->MayLeave(*s_.queue_pair_, now)) {
        if (m_.now->stuck(now)) Fail(m_.now->Cause(ETIMEDOUT, "the peer does not take what is on its way"));
        return false;
      }
      s_.EndLink();
      return false;
    case Phase::kNewLink:
      return Finish(now);
    case Phase::kLink:
    case Phase::kHandshake:
    case Phase::kThere:
    case Phase::kFailed:
      break;
  }
  m_.now->Step(*s_.queue_pair_, now);
  if (m_.now->phase() == Phase::kFailed) Fail(m_.now->cause());
  return m_.now != nullptr && m_.now->phase() == Phase::kThere && EnterNewLink();
}

bool Session::Moves::EnterNewLink() {
  m_.earlier_links = std::make_unique<verbs::QpCounters>(CountersOfAllLinks(s_));
  s_.queue_pair_ = m_.now->Take();
  const auto accepted = s_.HandleReply(m_.now->hello(), m_.now->answer(), m_.now->speaks_first());
  if (!accepted) Fail(m_.now->Cause(0, engine::ToString(accepted.error())));
  return accepted.has_value();
}

bool Session::Moves::Finish(Time now) {
  if (s_.engine_->state() == engine::State::kHelloSent) {
    if (m_.now->late(now)) Fail(m_.now->Cause(ETIMEDOUT, "no HelloAck came"));
    return false;
  }
  s_.queue_pair_->SetOrd(s_.engine_->ord());  // 8.1.1, 7d
  m_.now.reset();
  return true;
}

void Session::Moves::Fail(verbs::LinkCause cause) {
  m_.failure = std::make_unique<verbs::LinkCause>(std::move(cause));
  s_.Abort();
}

verbs::QpCounters Session::Moves::CountersOfAllLinks(const Session& session) {
  verbs::QpCounters sum = session.queue_pair().counters();
  if (session.move_.earlier_links != nullptr) Add(*session.move_.earlier_links, &sum);
  return sum;
}

}  // namespace sdp::preload
