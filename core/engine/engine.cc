#include "core/engine/engine.h"

#include "core/base/check.h"
#include "core/engine/rep.h"

namespace sdp::engine {

Engine::Engine(Role role, const Options& options) : rep_(std::make_unique<Rep>(role, options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

// --- Inputs

void Engine::HandleReceive(const ReceivedMessage& message) {
  rep_->Begin();
  rep_->HandleReceive(message);
  rep_->End();
}

void Engine::KeepReceived(uint64_t token) { rep_->sink.Keep(token); }

void Engine::HandleSendCompleted(WorkId id) {
  rep_->Begin();
  rep_->teardown.HandleSendCompleted(id);
  rep_->suspension.HandleSendCompleted(id);
  rep_->End();
}

void Engine::HandleReceiveSizeRefused() {
  Rep& r = *rep_;
  r.options.receive_buffer_size = r.resizing.own_size();
  r.options.receive_limit = r.resizing.limit_before();
  r.resizing.Refused();
  r.Repost();
  r.End();
}

void Engine::HandleLinkEnd(bool /*orderly*/) {
  // This call may come while the owner carries out actions; actions not yet polled are void.
  if (rep_->teardown.link_up() && suspended()) {
    rep_->teardown.LeaveLink();
    ++rep_->read_edge;
  } else if (rep_->teardown.link_up()) {
    if (rep_->source.pending_bytes() != 0 || rep_->source_offer.active()) rep_->credit.NoteLoss();
    rep_->teardown.HandleLinkEnd();
    rep_->source.Clear();
    rep_->FinishOffers();
    ++rep_->read_edge;
  }
  rep_->End();
}

// --- Commands

size_t Engine::Send(std::span<const Bytes> data, SendFlags flags) {
  Rep& r = *rep_;
  if (!r.can_send()) return 0;
  r.Begin();
  // Between two connections there is no size yet, and nothing leaves.
  const uint32_t capacity = r.established ? r.payload_capacity() : r.options.receive_buffer_size;
  const bool behind = r.source_offer.active();
  if (behind && !r.may_send_behind()) {  // bytes after the offer wait
    r.was_writable = false;
    r.End();
    return 0;
  }
  r.sends_behind = behind;
  // Staged bytes would leave before the SinkAvail.
  const bool with_offer = flags.buffering == Buffering::kFull && r.sink_avail_due();
  const bool wait = !r.established || r.suspension.under_way() || r.hello_ack_due || with_offer || behind;
  const uint32_t messages = wait ? 0 : r.credit.payload_messages();
  const bool none = flags.buffering == Buffering::kNone;
  const bool keep_all = flags.buffering == Buffering::kFull || (behind && !none);
  const size_t small = none ? 0 : capacity / 2;
  const auto taken = r.source.Send(data, capacity, messages, small, keep_all, flags.out_of_band,
                                   behind ? r.source_offer.left() : 0);
  r.stats.buffered_copies += taken.copied;
  if (r.source.stall() != SourceHalf::Stall::kNone) {
    ++r.stats.send_stalls;
    r.was_writable = false;
  }
  r.End();
  return taken.bytes;
}

size_t Engine::Receive(std::span<const MutableBytes> out, ReceiveFlags flags) {
  rep_->Begin();
  const size_t count = rep_->sink.Read(out, flags.peek);
  if (!flags.peek) rep_->Repost();
  rep_->End();
  return count;
}

// Frees nothing, because a process that ends in a signal handler also calls it.
void Engine::CloseSend() {
  if (rep_->open() && !rep_->teardown.aborted()) rep_->teardown.CloseSend();
  rep_->source.ForgetWriter();
  rep_->End();
}

void Engine::RefuseReceive() {
  rep_->Begin();
  rep_->sink.Refuse();
  rep_->adverts.ForceBcopy();
  rep_->RevokeSink();
  rep_->End();
}

void Engine::CloseReceive() {
  RefuseReceive();
  rep_->Begin();
  rep_->sink.Close();
  rep_->Repost();
  rep_->End();
}

void Engine::Abort(AbortReason reason) {
  rep_->source.Clear();  // also discards what an earlier Send staged (8.2.2)
  rep_->Fail(reason);
  if (!rep_->sink.closed()) rep_->sink.DropAll();
  rep_->End();
}

bool Engine::ChangeMode(Half half, FlowMode mode) {
  rep_->Begin();
  const bool accepted = !rep_->sending_over() && rep_->modes.Request(half, mode, rep_->credit.acknowledged());
  rep_->End();
  return accepted;
}

bool Engine::AskPeerBufferSize(uint32_t size) {
  Rep& r = *rep_;
  r.Begin();
  const bool asked =
      !r.sending_over() && !r.suspension.under_way() && r.resizing.Ask(size, r.peer_buffer_size);
  r.End();
  return asked;
}

void Engine::SetOutOfBandInline(bool value) {
  rep_->sink.SetUrgentInline(value);
  rep_->End();
}

void Engine::PreferPipelined(bool value) { rep_->options.prefer_pipelined = value; }

uint32_t Engine::sink_avail_bytes() const {
  const AdvertAnswers& adverts = rep_->adverts;
  return adverts.has_sink_avail() && rep_->modes.source() == FlowMode::kPipelined ? adverts.sink_avail().len
                                                                                  : 0;
}

void Engine::SetZcopyThreshold(uint32_t bytes) {
  rep_->options.source_threshold = rep_->options.sink_threshold = bytes;
}

void Engine::TrimSendBuffer() {
  rep_->Begin();
  rep_->source.TrimBuffer();
}
size_t Engine::send_buffer_memory() const { return rep_->source.buffer().allocated(); }

std::optional<std::byte> Engine::TakeOob(ReceiveFlags flags) {
  UrgentSink& urgent = rep_->sink.urgent();
  return flags.peek ? urgent.peek() : urgent.Take();
}

// --- Outputs

bool Engine::PollAction(Action* out) {
  if (rep_->AtRest()) {
    SDP_DCHECK(!rep_->PollAction(out));  // may change *out and last_work, which say nothing
    return false;
  }
  const bool polled = rep_->PollAction(out);
  rep_->End();
  return polled;
}

// --- Getters

State Rep::state() const {
  if (teardown.aborted()) return State::kAborted;
  if (!established) {
    if (!hello_done) return State::kIdle;
    return role == Role::kConnecting ? State::kHelloSent : State::kHelloReceived;
  }
  if (teardown.send_closed()) return teardown.peer_closed() ? State::kClosed : State::kSendClosed;
  return teardown.peer_closed() ? State::kReceiveClosed : State::kEstablished;
}

bool Rep::can_send() const { return open() && !teardown.send_closed() && !teardown.aborted(); }

bool Rep::writable() const {
  if (!can_send() || !established || suspension.under_way() || source.has_staged()) return false;
  if (source_offer.active()) return may_send_behind() && source.has_room();
  const bool at_once = source.pending_bytes() == 0 && credit.payload_messages() != 0 && !hello_ack_due;
  switch (source.stall()) {
    case SourceHalf::Stall::kNone:
    case SourceHalf::Stall::kRoom:
      return at_once || source.has_room();
    case SourceHalf::Stall::kCredit:
      return at_once;
  }
  return false;
}

void Rep::NoteRoom() {
  const bool now = writable();
  if (now && !was_writable) {
    ++write_edge;
    source.ClearStall();
  }
  was_writable = now;
}

void Rep::End() {
  // Staged bytes leave with the next actions. That they wait for those is no lack of room.
  if (!source.has_staged()) NoteRoom();
  credit.set_ack_may_lag(source_offer.cancel_outstanding());
  plain_then.reset();
  SDP_DCHECK(IsConsistent());
}

bool Rep::IsConsistent() const {
  if (!credit.IsConsistent() || !source.IsConsistent() || !sink.IsConsistent()) return false;
  if (established != (peer_buffer_size != 0) && role == Role::kConnecting) return false;
  if (established && peer_buffer_size < wire::kMinPrivateBuffer) return false;
  if (source.has_staged() && credit.payload_messages() == 0) return false;
  if (teardown.aborted() && source.pending_bytes() != 0) return false;
  return receives_to_post <= credit.posted();
}

State Engine::state() const { return rep_->state(); }
AbortReason Engine::abort_reason() const { return rep_->teardown.reason(); }
bool Engine::can_send() const { return rep_->can_send(); }
bool Engine::send_closed() const { return rep_->teardown.send_closed(); }
bool Engine::writable() const { return rep_->writable(); }
uint64_t Engine::readable_bytes() const { return rep_->sink.readable_bytes(); }
uint64_t Engine::readable_to_mark() const { return rep_->sink.readable_to_mark(); }
uint64_t Engine::readable_to_any_mark() const { return rep_->sink.readable_to_any_mark(); }

uint64_t Engine::unacknowledged_messages() const { return rep_->credit.sent() - rep_->credit.acknowledged(); }

bool Engine::end_of_stream() const {
  // 8.2.2: AbortConn, or an error of ours, invalidates the peer's DisConn.
  const AbortReason reason = rep_->teardown.reason();
  return peer_closed() && readable_bytes() == 0 &&
         (reason == AbortReason::kNone || reason == AbortReason::kLinkLost);
}

bool Engine::refused_data() const { return rep_->sink.refused(); }
bool Engine::only_updates_unheard() const { return rep_->credit.only_updates_unacknowledged(); }
bool Engine::peer_closed() const { return rep_->teardown.peer_closed(); }
uint64_t Engine::read_edge() const { return rep_->read_edge; }
uint64_t Engine::write_edge() const { return rep_->write_edge; }
uint64_t Engine::buffered_bytes() const { return rep_->source.pending_bytes(); }

uint64_t Engine::offered_bytes() const { return rep_->source_offer.active() ? rep_->source_offer.left() : 0; }

bool Engine::has_unfinished_sends() const {
  const Rep& r = *rep_;
  if (!r.teardown.link_up()) return false;
  if (r.teardown.aborted()) return r.teardown.abort_conn_outstanding();
  return r.source.pending_bytes() != 0 || r.source_offer.active() || r.teardown.disconn_due() ||
         r.hello_ack_due;
}

bool Engine::finished() const {
  const State now = rep_->state();
  return (now == State::kClosed || now == State::kAborted) && rep_->teardown.done() && !suspended() &&
         !rep_->sink.holds_memory() && rep_->releases.empty() && !rep_->source_offer.active() &&
         !rep_->sink_offer.active();
}

bool Engine::oob_pending() const { return rep_->sink.urgent().pending(); }
uint32_t Engine::urgent_announcements() const { return rep_->sink.urgent().announcements(); }
bool Engine::oob_available() const { return rep_->sink.urgent().available(); }
bool Engine::urgent() const { return rep_->sink.urgent().urgent(); }
bool Engine::at_mark() const { return rep_->sink.at_mark(); }

uint16_t Engine::receive_buffers() const { return rep_->options.receive_buffers; }
uint32_t Engine::source_threshold() const { return rep_->options.source_threshold; }
uint32_t Engine::sink_threshold() const { return rep_->options.sink_threshold; }
uint32_t Engine::receive_limit() const { return rep_->options.receive_limit; }
uint32_t Engine::advertised_in() const { return rep_->adverts.outstanding(); }
uint32_t Engine::advertised_out() const { return rep_->adverts_outstanding(); }
uint16_t Engine::ird() const { return rep_->options.ird; }
uint16_t Engine::ord() const { return rep_->ord; }
uint8_t Engine::minor_version() const { return rep_->minor_version; }

bool Engine::IsConsistent() const { return rep_->IsConsistent(); }

const Stats& Engine::stats() const {
  const Rep& r = *rep_;
  Stats& s = r.stats;
  s.source_mode = r.modes.source();
  s.sink_mode = r.modes.sink();
  s.send_credits = r.credit.credits();
  s.posted_receives = r.credit.posted();
  s.local_buffer_size = r.options.receive_buffer_size;
  s.remote_buffer_size = r.peer_buffer_size;
  s.receive_queue = r.sink.readable_bytes();
  s.send_queue = r.source.pending_bytes();
  return s;
}

}  // namespace sdp::engine
