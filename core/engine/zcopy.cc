// Zcopy (SDP 9.2 to 9.5.5): combines the application's buffers, the peer's advertisements and the modes.
#include <algorithm>

#include "core/base/check.h"
#include "core/engine/engine.h"
#include "core/engine/rep.h"

namespace sdp::engine {

bool Rep::wants_source(uint64_t size) const {
  if (!can_send() || sending_over() || suspension.under_way() || source_offer.active() ||
      source_offer.has_result())
    return false;
  switch (modes.source()) {
    case FlowMode::kBuffered:
      return false;
    case FlowMode::kCombined:
      return size > options.source_threshold;
    case FlowMode::kPipelined:
      if (options.await_sink_avail) return size > payload_capacity();
      // The peer's memory is available: the data needs no SrcAvail and no RDMA Read first.
      return size > (adverts.has_sink_avail() ? std::min(options.source_threshold, options.sink_threshold)
                                              : options.source_threshold);
  }
  return false;
}

SinkWish Rep::sink_wish(uint64_t size) const {
  if (sending_over() || suspension.under_way() || sink.closed() || sink.readable_bytes() != 0 ||
      sink_offer.active() || sink_offer.has_result() || teardown.peer_closed()) {
    return SinkWish::kNothing;
  }
  const uint32_t readable = adverts.readable();
  if (readable != 0) {
    return size >= std::min(readable, options.sink_threshold) ? SinkWish::kRead : SinkWish::kNothing;
  }
  return modes.sink() == FlowMode::kPipelined && adverts.sink_idle() && size > advertise_above()
             ? SinkWish::kAdvertise
             : SinkWish::kNothing;
}

// 10, 5 and 9.5.1: only a buffer larger than our receive Private Buffers is advertised.
uint64_t Rep::advertise_above() const { return std::max(options.sink_threshold, resizing.own_size()); }

bool Rep::OfferSource(const SourceBuffer& buffer) {
  if (!can_send() || sending_over() || suspension.under_way() || source_offer.active() ||
      source_offer.has_result())
    return false;
  if (buffer.data.empty() || buffer.data.size() > wire::kMaxSize) return false;
  source.ForgetWriter();
  source_offer.Begin(buffer);
  sends_behind = false;
  return true;
}

bool Rep::OfferSink(const SinkBuffer& buffer) {
  if (sending_over() || suspension.under_way() || sink.closed() || sink.readable_bytes() != 0 ||
      teardown.peer_closed() || sink_offer.active() || sink_offer.has_result()) {
    return false;
  }
  if (buffer.data.empty() || buffer.data.size() > wire::kMaxSize) return false;
  sink_offer.Begin(buffer);
  return true;
}

bool Rep::PollRdma(Action* out) {
  if (!established || teardown.aborted() || suspension.under_way()) return false;
  if (sink_offer.room() != 0 && adverts.readable() != 0 && sink.readable_bytes() == 0 &&
      sink_offer.reads() < std::min<uint32_t>(ord, SinkOffer::kMaxReads)) {
    const auto length = static_cast<uint32_t>(std::min<uint64_t>(
        {sink_offer.room(), adverts.readable(), std::max<uint32_t>(options.read_size, 1)}));
    *out = sink_offer.Read(WorkId(++last_work), length, adverts.stag(), adverts.va());
    adverts.ReadPosted(length);
    return true;
  }
  if (source_offer.idle() && !source_offer.revoked() && pending_bytes() == 0 && adverts.has_sink_avail() &&
      modes.source() == FlowMode::kPipelined && !modes.source_change_due()) {
    const wire::SinkAvail& to = adverts.sink_avail();
    write_work = WorkId(++last_work);
    *out = PostRdmaWrite{.id = write_work,
                         .local = source_offer.BeginWrite(std::min<uint64_t>(source_offer.left(), to.len)),
                         .local_stag = source_offer.stag(),
                         .remote_stag = to.stag,
                         .remote_va = to.va};
    adverts.WritePosted();
    return true;
  }
  return false;
}

void Rep::HandleRdmaReadCompleted(WorkId id) {
  const uint32_t length = sink_offer.ReadCompleted(id);
  if (length == 0) return;
  adverts.ReadCompleted(length);
  if (sink_offer.moved()) {
    sink.PlacedAside(sink_offer.memory().subspan(sink_offer.filled() - length, length));
    ++read_edge;
  } else {
    sink.PlacedDirectly(length);
  }
  stats.read_zcopy_bytes_in += length;
  if (!sink_offer.reading() && (sink_offer.room() == 0 || adverts.readable() == 0)) {
    sink_offer.Finish();
    ++read_edge;
  }
}

void Rep::HandleRdmaWriteCompleted(WorkId id) {
  if (!source_offer.writing() || id != write_work) return;
  const uint32_t size = source_offer.WriteCompleted();
  adverts.WriteCompleted(size);
  source.TakenDirectly(size);
  stats.write_zcopy_bytes_out += size;
  SettleSource();
}

// Gives the source buffer back if no part of it is promised and no step is left.
void Rep::SettleSource() {
  if (!source_offer.active()) return;
  if (source_offer.revoked() && source_offer.moved()) {
    // The bytes that the peer did not take still follow. Forced bytes, too, go to the send buffer, and need
    // no credit here.
    if (!source_offer.advertised() && !source_offer.writing()) KeepMoved();
    return;
  }
  if (source_offer.revoked() && source_offer.forced() != 0) {
    // 9.2: the peer asked for the data, which has to follow; the caller cannot wait for that.
    const uint64_t forced = source_offer.forced();
    source.Keep(source_offer.rest().first(forced));
    source_offer.Finish(forced);
  } else if (source_offer.idle() && (source_offer.left() == 0 || source_offer.revoked())) {
    source_offer.Finish();
  } else {
    return;
  }
  ++write_edge;
}

void Rep::FinishOffers() {
  if (source_offer.active()) ++write_edge;
  if (sink_offer.active()) ++read_edge;
  source_offer.Finish();
  sink_offer.Finish();
  adverts.Lapse();
}

void Rep::KeepMoved() {
  // The bytes go between those sent before the offer and those sent after it.
  if (sends_behind) {
    source.KeepFirst(source_offer.rest());
  } else {
    source.Keep(source_offer.rest());
  }
  source_offer.Finish(source_offer.left());
  ++write_edge;
}

void Rep::LapseOffers() {
  if (source_offer.moved()) KeepMoved();
  FinishOffers();
}

void Rep::RevokeSource() {
  source_offer.Revoke();
  SettleSource();
}

void Rep::RevokeSink() {
  if (!sink_offer.active()) return;
  sink_offer.Revoke();
  if (!sink_offer.active()) ++read_edge;
}

AbortReason Rep::HandleSrcAvail(const wire::SrcAvail& advert, uint32_t payload) {
  ++stats.src_avails_in;
  if (teardown.peer_closed()) return AbortReason::kDataAfterDisConn;
  // The payload precedes the advertised bytes, so the earlier advertisements decide about it.
  if (const auto bad = adverts.HandlePayload(payload); bad != AbortReason::kNone) return bad;
  const auto reason = adverts.HandleSrcAvail(advert, payload, modes.sink(), sink_offer.advertised());
  if (reason == AbortReason::kNone && sink.closed()) adverts.ForceBcopy();
  ++read_edge;
  return reason;
}

AbortReason Rep::HandleSinkAvail(const wire::SinkAvail& advert, uint32_t payload) {
  ++stats.sink_avails_in;
  if (const auto bad = adverts.HandlePayload(payload); bad != AbortReason::kNone) return bad;
  const bool leaving = modes.leaving_pipelined(credit.acknowledged());
  const auto reason = adverts.HandleSinkAvail(advert, modes.source(), leaving);
  if (reason != AbortReason::kNone || !source_offer.advertised()) return reason;
  // 11.3, 1b; 12.4: the peer has dropped the SrcAvail that crossed its SinkAvail, unless our payload made
  // that stale.
  const bool crossed =
      modes.source() == FlowMode::kPipelined
          ? adverts.has_sink_avail()
          : adverts.ignored_was_fresh() && source_offer.advertised_in() < modes.left_pipelined();
  if (crossed) {
    source_offer.Overridden();
    SettleSource();
  }
  return AbortReason::kNone;
}

AbortReason Rep::HandleSendSm() {
  ++stats.send_sms_in;
  const auto reason = source_offer.HandleSendSm(credit.acknowledged());
  SettleSource();
  if (reason == AbortReason::kNone && options.follow_hints && modes.source() == FlowMode::kPipelined) {
    // The peer's reader does not wait with a buffer: in Combined Mode it gets the first bytes at once.
    (void)modes.Request(Half::kSource, FlowMode::kCombined, credit.acknowledged());
  }
  return reason;
}

AbortReason Rep::HandleRdmaRdCompl(const wire::RdmaRdCompl& completed,
                                   const std::optional<STag>& invalidated) {
  const auto reason = source_offer.HandleRdmaRdCompl(completed.len, invalidated);
  if (reason != AbortReason::kNone) return reason;
  source.TakenDirectly(completed.len);
  stats.read_zcopy_bytes_out += completed.len;
  SettleSource();
  return AbortReason::kNone;
}

AbortReason Rep::HandleRdmaWrCompl(const wire::RdmaWrCompl& completed,
                                   const std::optional<STag>& invalidated) {
  const bool moved = sink_offer.moved();
  const Bytes memory = sink_offer.memory();
  const auto reason = sink_offer.HandleRdmaWrCompl(completed.len, invalidated, credit.acknowledged());
  if (reason != AbortReason::kNone) return reason;
  if (moved) {
    sink.PlacedAside(memory.first(completed.len));
  } else {
    sink.PlacedDirectly(completed.len);
  }
  stats.write_zcopy_bytes_in += completed.len;
  ++read_edge;
  return AbortReason::kNone;
}

void Rep::HandleSrcAvailCancel() {
  ++stats.cancels_in;
  adverts.HandleSrcAvailCancel();
  if (adverts.cancelling()) credit.HoldAck();
}

bool Rep::PollCompletion(PostSend* post) {
  // 6.1.2. In both messages the hint is about the half-connection in which we are the Data Sink.
  const uint8_t hint = options.prefer_pipelined && modes.sink() != FlowMode::kBuffered ? wire::kReqPipe : 0;
  if (adverts.rd_compl_due()) {
    const bool cancelling = adverts.cancelling();
    const auto completed = adverts.TakeRdCompl();
    Compose(wire::RdmaRdCompl{completed.size}, MessageKind::kControl, hint, post);
    if (completed.last) post->invalidate = completed.stag;
    if (cancelling) credit.ReleaseAck();
    return true;
  }
  if (adverts.wr_compl_due()) {
    const auto completed = adverts.TakeWrCompl();
    Compose(wire::RdmaWrCompl{completed.size}, MessageKind::kControl, hint, post);
    post->invalidate = completed.stag;
    return true;
  }
  return false;
}

// Composes answers and cancels: messages without payload that precede any data.
bool Rep::PollZcopyControl(PostSend* post) {
  // 9.2: both sides advertise and neither receives.
  if (source_offer.advertised() && !sink_offer.active() && !sink_offer.has_result()) adverts.ForceBcopy();
  if (PollCompletion(post)) return true;
  if (adverts.send_sm_due()) {
    adverts.SendSmTaken();
    ++stats.send_sms_out;
    Compose(wire::SendSm{}, MessageKind::kControl, 0, post);
    return true;
  }
  if (adverts.sink_cancel_ack_due()) {
    adverts.SinkCancelAckTaken();
    Compose(wire::SinkCancelAck{}, MessageKind::kControl, 0, post);
    return true;
  }
  if (source_offer.cancel_due()) {
    source_offer.CancelTaken(credit.sent());
    ++stats.cancels_out;
    Compose(wire::SrcAvailCancel{}, MessageKind::kControl, 0, post);
    return true;
  }
  if (sink_offer.cancel_due()) {
    sink_offer.CancelTaken(credit.sent());
    ++stats.cancels_out;
    Compose(wire::SinkAvailCancel{}, MessageKind::kControl, 0, post);
    return true;
  }
  return false;
}

// Returns true if a buffer should be advertised now, and only credit may be missing.
bool Rep::sink_avail_due() const {
  if (!sink_offer.wants_advertising() || modes.sink() != FlowMode::kPipelined || suspension.under_way())
    return false;
  if (!adverts.sink_idle() || sink.readable_bytes() != 0 || sink_offer.size() <= advertise_above())
    return false;
  return !teardown.peer_closed() && adverts_outstanding() < peer_max_adverts;
}

// Composes a SinkAvail, with buffered data as its payload if it fits (9.4).
bool Rep::PollSinkAvail(PostSend* post) {
  if (!sink_avail_due()) return false;
  const uint32_t room = payload_capacity() - wire::SinkAvail::kSize;
  const bool with_payload = pending_bytes() != 0 && pending_bytes() <= room && !source.has_urgent() &&
                            credit.payload_messages() != 0;
  if (!with_payload && !credit.may_send_control()) return false;
  ++stats.sink_avails_out;
  const wire::SinkAvail advert = sink_offer.Advertise();
  if (!with_payload) {
    Compose(advert, MessageKind::kControl, 0, post);
    return true;
  }
  uint8_t flags = 0;
  const size_t payload = source.NextPayload(room, post, &flags);
  Compose(advert, MessageKind::kPayload, flags, post, static_cast<uint32_t>(payload));
  adverts.PayloadSent();
  stats.transaction_bytes_out += payload;
  return true;
}

// Takes the next step of the application's send buffer, once all earlier data has left.
bool Rep::PollSourceOffer(PostSend* post) {
  if (!source_offer.active() || source_offer.advertised() || source_offer.writing()) return false;
  if (source_offer.forced() != 0) return ComposeOfferData(source_offer.forced(), post);
  if (modes.source_change_due() || suspension.under_way()) return false;
  const bool large = source_offer.left() > options.source_threshold && source_offer.can_advertise();
  switch (modes.source()) {
    case FlowMode::kBuffered:
      return ComposeOfferData(source_offer.left(), post);
    case FlowMode::kCombined:
      if (!large) return ComposeOfferData(source_offer.left(), post);
      return adverts_outstanding() < peer_max_adverts && PollSrcAvail(/*with_payload=*/true, post);
    case FlowMode::kPipelined:
      if (adverts.has_sink_avail() || adverts.writing()) return false;  // the buffer is written (11.3, 1a)
      if (options.await_sink_avail && source_offer.can_wait()) return false;
      if (!large) return ComposeOfferData(source_offer.left(), post);
      return adverts_outstanding() < peer_max_adverts && PollSrcAvail(/*with_payload=*/false, post);
  }
  return false;
}

bool Rep::PollSrcAvail(bool with_payload, PostSend* post) {
  if (with_payload ? credit.payload_messages() == 0 : !credit.may_send_control()) return false;
  const uint32_t room = payload_capacity() - wire::SrcAvail::kSize;
  const auto payload = static_cast<uint32_t>(
      with_payload
          ? std::min<uint64_t>({room, std::max(options.src_avail_payload, 1u), source_offer.left() - 1})
          : 0);
  const wire::SrcAvail advert = source_offer.Advertise(credit.sent(), payload);
  if (payload != 0) {
    post->pieces[0] = source_offer.TakePayload(payload);
    post->piece_count = 1;
  }
  Compose(advert, payload != 0 ? MessageKind::kPayload : MessageKind::kControl, 0, post, payload);
  ++stats.src_avails_out;
  if (payload != 0) {
    source.TakenDirectly(payload);
    adverts.PayloadSent();
    stats.bcopy_bytes_out += payload;
  }
  return true;
}

bool Rep::ComposeOfferData(uint64_t limit, PostSend* post) {
  if (credit.payload_messages() == 0) return false;
  const auto size = static_cast<uint32_t>(std::min<uint64_t>(limit, payload_capacity()));
  post->pieces[0] = source_offer.TakePayload(size);
  post->piece_count = 1;
  Compose(wire::Data{}, MessageKind::kPayload, 0, post, size);
  source.TakenDirectly(size);
  adverts.PayloadSent();
  stats.bcopy_bytes_out += size;
  NoteDataSent(size, source_offer.left() != 0);
  // SettleSource() gives an emptied buffer back at once. This action refers to it until the next input or
  // command.
  return true;
}

// --- the façade's part

bool Engine::wants_source(uint64_t size) const { return rep_->wants_source(size); }
SinkWish Engine::sink_wish(uint64_t size) const { return rep_->sink_wish(size); }

bool Engine::OfferSource(const SourceBuffer& buffer) {
  rep_->Begin();
  const bool taken = rep_->OfferSource(buffer);
  rep_->End();
  return taken;
}

bool Engine::OfferSink(const SinkBuffer& buffer) {
  rep_->Begin();
  const bool taken = rep_->OfferSink(buffer);
  rep_->End();
  return taken;
}

bool Engine::source_promised() const { return rep_->source_offer.active() && !rep_->source_offer.idle(); }
void Engine::MoveSource(Bytes copy) {
  if (rep_->source_offer.active()) rep_->source_offer.Move(copy);
  rep_->End();
}

bool Engine::sink_promised() const { return rep_->sink_offer.reading() || rep_->sink_offer.advertised(); }
uint64_t Engine::MoveSink(MutableBytes copy) {
  rep_->Begin();
  const uint64_t filled = rep_->sink_offer.active() ? rep_->sink_offer.Move(copy) : 0;
  rep_->End();
  return filled;
}

void Engine::RevokeSource() {
  rep_->Begin();
  rep_->RevokeSource();
  rep_->End();
}

void Engine::RevokeSink() {
  rep_->Begin();
  rep_->RevokeSink();
  rep_->End();
}

bool Engine::source_offered() const { return rep_->source_offer.active(); }
bool Engine::sink_offered() const { return rep_->sink_offer.active(); }

std::optional<OfferResult> Engine::TakeSourceResult() {
  const auto result = rep_->source_offer.TakeResult();
  rep_->End();
  return result;
}

std::optional<OfferResult> Engine::TakeSinkResult() {
  const auto result = rep_->sink_offer.TakeResult();
  rep_->End();
  return result;
}

void Engine::ForceBcopy() {
  rep_->Begin();
  rep_->adverts.ForceBcopy();
  rep_->End();
}

uint64_t Engine::advertised_bytes() const { return rep_->adverts.advertised_bytes(); }

void Engine::HandleRdmaReadCompleted(WorkId id) {
  rep_->Begin();
  rep_->HandleRdmaReadCompleted(id);
  rep_->End();
}

void Engine::HandleRdmaWriteCompleted(WorkId id) {
  rep_->Begin();
  rep_->HandleRdmaWriteCompleted(id);
  rep_->End();
}

}  // namespace sdp::engine
