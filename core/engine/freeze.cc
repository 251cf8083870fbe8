// An engine as bytes and back. The format is a magic number, a version, and the fields below in order,
// big-endian. The reader is the same build of the same library in another process, so it knows or refuses the
// version.
#include <algorithm>

#include "core/base/archive.h"
#include "core/base/check.h"
#include "core/engine/engine.h"
#include "core/engine/rep.h"

namespace sdp::engine {
namespace {

constexpr uint32_t kMagic = 0x53445045;  // "SDPE"
constexpr uint16_t kVersion = 8;
constexpr uint64_t kMostMessages = uint64_t{1} << 62;  // keeps sums of counters from wrapping

}  // namespace

// Frozen has access to the state of every part.
struct Frozen {
  template <typename Archive>
  static void Visit(Archive& ar, Options& o) {
    ar.Number(o.receive_buffers);
    ar.Number(o.receive_buffer_size);
    ar.Number(o.receive_buffer_limit);
    ar.Number(o.desired_remote_size);
    ar.Flag(o.enlarge_remote);
    ar.Number(o.receive_limit);
    ar.Number(o.send_limit);
    ar.Number(o.max_adverts);
    ar.Flag(o.read_zcopy);
    ar.Number(o.source_threshold);
    ar.Number(o.sink_threshold);
    ar.Number(o.src_avail_payload);
    ar.Number(o.read_size);
    ar.Flag(o.prefer_pipelined);
    ar.Flag(o.follow_hints);
    ar.Flag(o.begin_pipelined);
    ar.Flag(o.await_sink_avail);
    ar.Number(o.ird);
    ar.Number(o.ord);
  }

  template <typename Archive>
  static void Visit(Archive& ar, CreditLedger& c) {
    ar.Number(c.sent_);
    ar.Number(c.acknowledged_);
    ar.Number(c.limit_);
    ar.Number(c.sent_before_updates_);
    ar.Number(c.nudged_);
    ar.Number(c.peer_initial_);
    ar.Flag(c.ack_ambiguous_);
    ar.Number(c.posted_);
    ar.Number(c.initial_posted_);
    ar.Number(c.received_);
    ar.Number(c.told_limit_);
    ar.Number(c.formula_limit_);
    VisitOptional(ar, c.held_, [&](uint64_t& held) {
      ar.Number(held);
      ar.Require(held != 0 && held <= c.received_);
    });
    ar.Flag(c.told_first_);
    ar.Number(c.updates_received_);
    ar.Flag(c.others_received_);
    ar.Flag(c.crossed_);
    ar.Number(c.answered_updates_);
    ar.Require(c.limit_ < kMostMessages && c.received_ < kMostMessages && c.told_limit_ < kMostMessages &&
               c.formula_limit_ < kMostMessages);
  }

  template <typename Archive>
  static void Visit(Archive& ar, SendBuffer& b) {
    uint32_t size = b.size_;
    ar.Number(size);
    if constexpr (Archive::kReads) {
      b.AppendAll(ar.Take(size));
    } else if (size != 0) {
      const size_t first = std::min<size_t>(size, b.capacity_ - b.head_);
      ar.Append({b.memory_.get() + b.head_, first});
      ar.Append({b.memory_.get(), size - first});
    }
  }

  template <typename Archive>
  static void Visit(Archive& ar, SourceHalf& s) {
    Visit(ar, s.buffer_);
    ar.Enum(s.stall_, SourceHalf::Stall::kRoom);
    ar.Flag(s.writer_expected_);
    ar.Number(s.sent_bytes_);
    VisitList(ar, s.urgent_.marks_, UINT32_MAX, [&](uint64_t& mark) { ar.Number(mark); });
    auto announced = static_cast<uint32_t>(s.urgent_.announced_);
    ar.Number(announced);
    s.urgent_.announced_ = announced;
    ar.Require(s.sent_bytes_ < kMostMessages && announced <= s.urgent_.marks_.size());
    uint64_t from = s.sent_bytes_;
    for (const uint64_t mark : s.urgent_.marks_) {
      ar.Require(mark >= from && mark < s.sent_bytes_ + s.buffer_.size());
      from = mark + 1;
    }
  }

  // Received data is copied, because its lender stays behind. Each message becomes one piece with its cost.
  template <typename Archive>
  static void Visit(Archive& ar, ReceiveQueue& q) {
    if constexpr (Archive::kReads) {
      q.Thaw(ar);
    } else {
      uint32_t messages = 0;
      for (uint32_t i = q.consumed_; i < q.size_; ++i) messages += q.at(i).last || q.at(i).owned ? 1 : 0;
      ar.Number(messages);
      uint32_t first = q.consumed_;
      for (uint32_t i = q.consumed_; i < q.size_; ++i) {
        if (!q.at(i).last && !q.at(i).owned) continue;
        uint32_t size = 0;
        for (uint32_t j = first; j <= i; ++j) size += q.at(j).size;
        ar.Number(size);
        ar.Number(q.at(i).cost);
        for (uint32_t j = first; j <= i; ++j) ar.Append({q.at(j).data, q.at(j).size});
        first = i + 1;
      }
    }
  }

  template <typename Archive>
  static void Visit(Archive& ar, UrgentSink& u) {
    ar.Flag(u.inline_);
    ar.Number(u.announced_);
    VisitOptional(ar, u.mark_, [&](uint64_t& mark) { ar.Number(mark); });
    VisitOptional(ar, u.byte_, [&](std::byte& byte) {
      auto number = static_cast<uint8_t>(byte);
      ar.Number(number);
      byte = std::byte{number};
    });
  }

  template <typename Archive>
  static void Visit(Archive& ar, SinkHalf& s) {
    Visit(ar, s.queue_);
    Visit(ar, s.urgent_);
    ar.Number(s.read_bytes_);
    ar.Flag(s.closed_);
    ar.Require(s.read_bytes_ < kMostMessages);
  }

  template <typename Archive>
  static void Visit(Archive& ar, FlowModes& m) {
    ar.Enum(m.source_, FlowMode::kPipelined);
    ar.Enum(m.sink_, FlowMode::kPipelined);
    VisitOptional(ar, m.requested_, [&](wire::ModeChange& change) {
      ar.Number(change.mode);
      ar.Flag(change.receivers_source);
      ar.Require(change.mode <= wire::ModeChange::kPipelined);
    });
    ar.Number(m.left_pipelined_);
  }

  template <typename Archive>
  static void Visit(Archive& ar, AdvertAnswers& a) {
    VisitList(ar, a.src_avails_, a.max_adverts_, [&](AdvertAnswers::Src& src) {
      ar.Number(src.left);
      ar.Number(src.done);
      src.posted = src.done;
      Visit(ar, src.stag);
      ar.Number(src.va);
      // Only the oldest SrcAvail is ever read.
      ar.Require(src.done <= src.left && (src.done == 0 || &src == &a.src_avails_[0]));
    });
    ar.Number(a.forced_);
    ar.Flag(a.cancelling_);
    ar.Flag(a.dropped_);
    ar.Flag(a.settling_);
    ar.Flag(a.cancelled_);
    ar.Number(a.owed_);
    ar.Flag(a.forgiven_);
    VisitList(ar, a.sink_avails_, a.max_adverts_, [&](wire::SinkAvail& sink) {
      ar.Number(sink.len);
      Visit(ar, sink.stag);
      ar.Number(sink.va);
      ar.Number(sink.non_discards);
      ar.Require(sink.len != 0);
    });
    ar.Flag(a.wr_compl_due_);
    ar.Number(a.written_);
    ar.Flag(a.cancelling_writes_);
    ar.Flag(a.dropped_sinks_);
    ar.Flag(a.sink_cancel_ack_due_);
    ar.Flag(a.source_closed_);
    ar.Require(a.forced_ <= a.src_avails_.size() &&
               a.sink_avails_.size() + a.src_avails_.size() <= a.max_adverts_);
    ar.Require(!a.cancelling_ || (a.src_avails_.size() == 1 && a.in_process() && a.forced_ == 0));
    ar.Require(!a.wr_compl_due_ || (!a.sink_avails_.empty() && a.written_ <= a.sink_avails_[0].len));
    ar.Require(!a.cancelling_writes_ || a.wr_compl_due_);
    ar.Number(a.potential_non_discards_);
    ar.Number(a.potential_when_left_);
    ar.Require(a.owed_ < kMostMessages);
  }

  template <typename Archive>
  static void Visit(Archive& ar, STag& stag) {
    uint32_t value = stag.value();
    ar.Number(value);
    stag = STag(value);
  }

  template <typename Archive>
  static void Visit(Archive& ar, BufferResizing& b) {
    ar.Number(b.own_size_);
    ar.Number(b.old_left_);
    ar.Number(b.asked_);
    ar.Number(b.before_);
    ar.Number(b.asked_in_);
    ar.Flag(b.answering_);
    ar.Flag(b.outstanding_);
    ar.Flag(b.no_larger_);
    ar.Flag(b.no_smaller_);
    // A size of 0 means that nothing is asked for.
    ar.Require(b.asked_ == 0 ? !b.outstanding_
                             : b.asked_ >= wire::kMinPrivateBuffer && b.asked_ <= wire::kMaxSize);
    ar.Require(b.before_ == 0 ? !b.outstanding_ : b.asked_ != 0 && b.before_ >= wire::kMinPrivateBuffer);
  }

  template <typename Archive>
  static void Visit(Archive& ar, Enlargement& e) {
    ar.Number(e.pressure_);
    ar.Flag(e.asked_);
    ar.Require(e.pressure_ <= Enlargement::kMostWindow);
  }

  template <typename Archive>
  static void Visit(Archive& ar, SinkOffer& o) {
    ar.Number(o.non_discards_);
    ar.Number(o.cancels_);
    ar.Flag(o.ack_expected_);
  }

  template <typename Archive>
  static void Visit(Archive& ar, Teardown& t) {
    ar.Flag(t.send_closed_);
    ar.Flag(t.disconn_sent_);
    ar.Flag(t.peer_closed_);
    ar.Flag(t.repeat_expected_);
    ar.Require(t.peer_closed_ || !t.repeat_expected_);
    ar.Flag(t.link_up_);
    ar.Flag(t.link_step_taken_);
    ar.Enum(t.reason_, AbortReason::kBadCompletion);
    // Any other step implies an action or a completion to come.
    ar.Enum(t.abort_, Teardown::AbortStep::kLinkDue);
    ar.Require(t.abort_ == Teardown::AbortStep::kNone || t.abort_ == Teardown::AbortStep::kLinkDue);
    ar.Require(!t.disconn_sent_ || t.send_closed_);
    ar.Require(!t.aborted() || !t.link_up_ || t.link_step_taken_);
  }

  template <typename Archive>
  static void Visit(Archive& ar, Suspension& s) {
    using Phase = Suspension::Phase;
    ar.Enum(s.phase_, Phase::kRemoteDone);
    VisitOptional(ar, s.wish_, [&](uint16_t& port) { ar.Number(port); });
    ar.Number(s.port_);
    ar.Flag(s.disregarded_);
    ar.Flag(s.crossed_);
    ar.Flag(s.resumed_);
    // Any other phase implies a completion to come, or has a port.
    ar.Require(s.at_rest() && (s.phase_ != Phase::kNone || !s.wish_));
    ar.Require((s.phase_ != Phase::kAsking && s.phase_ != Phase::kAwaiting) || s.wish_);
    ar.Require(!s.crossed_ || (s.phase_ == Phase::kAnswering && s.wish_));
    ar.Require(!s.disregarded_ || s.phase_ == Phase::kAwaiting);
  }

  template <typename Archive>
  static void Visit(Archive& ar, Stats& s) {
    for (uint64_t* counter : {&s.messages_in,
                              &s.messages_out,
                              &s.bcopy_bytes_in,
                              &s.bcopy_bytes_out,
                              &s.read_zcopy_bytes_in,
                              &s.read_zcopy_bytes_out,
                              &s.write_zcopy_bytes_in,
                              &s.write_zcopy_bytes_out,
                              &s.transaction_bytes_in,
                              &s.transaction_bytes_out,
                              &s.src_avails_in,
                              &s.src_avails_out,
                              &s.sink_avails_in,
                              &s.sink_avails_out,
                              &s.send_sms_in,
                              &s.send_sms_out,
                              &s.cancels_in,
                              &s.cancels_out,
                              &s.gratuitous_updates_out,
                              &s.send_stalls,
                              &s.buffered_copies}) {
      ar.Number(*counter);
    }
  }

  // Everything after the role and the options, which the constructor of Rep takes.
  template <typename Archive>
  static void Visit(Archive& ar, Rep& r) {
    ar.Flag(r.hello_done);
    ar.Flag(r.established);
    ar.Flag(r.pipelined_due);
    ar.Number(r.peer_buffer_size);
    ar.Number(r.peer_max_adverts);
    ar.Number(r.ord);
    ar.Number(r.minor_version);
    Visit(ar, r.credit);
    Visit(ar, r.source);
    Visit(ar, r.sink);
    Visit(ar, r.modes);
    Visit(ar, r.adverts);
    Visit(ar, r.sink_offer);
    Visit(ar, r.teardown);
    Visit(ar, r.resizing);
    ar.Require(r.resizing.own_size() != 0);
    Visit(ar, r.enlargement);
    Visit(ar, r.suspension);
    ar.Number(r.last_work);
    ar.Flag(r.was_writable);
    ar.Number(r.read_edge);
    ar.Number(r.write_edge);
    Visit(ar, r.stats);

    const bool size_is_legal =
        r.peer_buffer_size >= wire::kMinPrivateBuffer && r.peer_buffer_size <= wire::kMaxSize;
    ar.Require(r.peer_buffer_size == 0 ? !r.established : size_is_legal);
    ar.Require(!r.established || r.hello_done);
    ar.Require(r.open() || (r.sink.readable_bytes() == 0 && r.source.pending_bytes() == 0));
    ar.Require(r.established || !r.suspension.under_way() || r.suspension.ask_due());
    ar.Require(r.credit.posted() <= r.options.receive_buffers + CreditLedger::kMostBehind);
    // After an AbortConn, too, an unanswered cancel stays unacknowledged (9.5.4).
    ar.Require(r.credit.ack_held() == r.adverts.cancelling() || r.teardown.aborted());
    const Teardown& t = r.teardown;
    ar.Require(t.aborted() || t.over() || !t.link_step_taken_);
    ar.Require(t.aborted() || t.over() || t.link_up_ || r.suspension.complete());
    ar.Require(!t.repeat_expected_ || r.suspension.resumed());
  }
};

template <typename Archive>
void ReceiveQueue::Thaw(Archive& ar) {
  uint32_t messages = 0;
  ar.Number(messages);
  ar.Require(messages <= ar.left() / 8);
  if (!ar.ok() || messages == 0) return;
  std::byte* to = Own(ar.left());
  for (uint32_t i = 0; i < messages; ++i) {
    Piece piece{.data = to, .owned = true};
    ar.Number(piece.size);
    ar.Number(piece.cost);
    const Bytes bytes = ar.Take(piece.size);
    ar.Require(piece.size != 0 && piece.cost != 0);
    if (!ar.ok()) return;
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
    bytes_ += piece.size;
    held_cost_ += piece.cost;
    PushPiece(piece);
  }
}

bool Engine::freezable() const {
  const Rep& r = *rep_;
  return r.releases.empty() && r.receives_to_post == 0 && !r.size_due && !r.hello_ack_due &&
         !r.source.has_staged() && !r.sink.has_release() && r.teardown.at_rest() &&
         !r.source_offer.active() && !r.source_offer.has_result() && !r.sink_offer.active() &&
         !r.sink_offer.has_result() && r.suspension.at_rest();
}

std::vector<std::byte> Engine::Freeze() const {
  Writer ar;
  Freeze(ar);
  return ar.Take();
}

void Engine::Freeze(Writer& ar) const {
  SDP_CHECK(freezable());
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  ar.Number(magic);
  ar.Number(version);
  Role role = rep_->role;
  ar.Enum(role, Role::kAccepting);
  Frozen::Visit(ar, rep_->options);
  Frozen::Visit(ar, *rep_);
}

Result<Engine, ThawError> Engine::Thaw(Bytes frozen) {
  Reader ar(frozen);
  uint32_t magic = 0;
  uint16_t version = 0;
  ar.Number(magic);
  ar.Number(version);
  if (!ar.ok() || magic != kMagic) return unexpected(ThawError::kNotAnEngine);
  if (version != kVersion) return unexpected(ThawError::kOtherVersion);
  Role role{};
  Options options;
  ar.Enum(role, Role::kAccepting);
  Frozen::Visit(ar, options);
  if (!ar.ok()) return unexpected(ThawError::kBroken);
  Engine engine(role, options);
  Frozen::Visit(ar, *engine.rep_);
  if (!ar.ok() || ar.left() != 0 || !engine.IsConsistent()) return unexpected(ThawError::kBroken);
  return engine;
}

}  // namespace sdp::engine
