// What leaves, in which order. Releases and receives come first, so that a message counts only receives
// posted before it. Then come promises (staged data, whose credit Send has counted), answers, buffered data,
// DisConn, and last the bare update.
#include <algorithm>

#include "core/base/check.h"
#include "core/engine/rep.h"

namespace sdp::engine {
namespace {

// SDP 14.2. The flags of Data decide.
bool IsSolicited(wire::Mid mid, uint8_t flags) {
  switch (mid) {
    case wire::Mid::kAbortConn:
    case wire::Mid::kSuspComm:
    case wire::Mid::kSuspCommAck:
    case wire::Mid::kSendSm:
    case wire::Mid::kSrcAvailCancel:
    case wire::Mid::kSinkAvailCancel:
    case wire::Mid::kHelloAck:
    case wire::Mid::kRdmaWrCompl:
    case wire::Mid::kRdmaRdCompl:
    case wire::Mid::kSinkCancelAck:
      return true;
    case wire::Mid::kData:
      return (flags & (wire::kOobPres | wire::kOobPend)) != 0;
    default:
      return false;
  }
}

}  // namespace

bool Rep::PollAction(Action* out) {
  if (!releases.empty()) {
    *out = ReleaseReceive{releases.front()};
    releases.erase(releases.begin());
    return true;
  }
  if (const auto token = sink.PollRelease()) {
    *out = ReleaseReceive{*token};
    return true;
  }
  if (!teardown.link_up()) return false;
  if (size_due && !teardown.aborted()) {
    size_due = false;
    *out = SetReceiveSize{options.receive_buffer_size, sink.PostedTarget()};
    return true;
  }
  if (suspend_possible()) MakeRoomToSuspend();
  if (receives_to_post != 0 && !teardown.aborted()) {
    *out = PostReceives{receives_to_post};
    receives_to_post = 0;
    return true;
  }
  if (PollRdma(out)) return true;
  if (PollMessage(out)) {
    ++stats.messages_out;
    SettleSource();
    return true;
  }
  switch (teardown.TakeLinkStep()) {
    case Teardown::LinkStep::kNone:
      return false;
    case Teardown::LinkStep::kDisconnect:
      *out = DisconnectLink{};
      return true;
    case Teardown::LinkStep::kAbort:
      *out = AbortLink{};
      return true;
  }
  return false;
}

bool Rep::PollMessage(Action* out) {
  if (!established || suspension.silent()) return false;
  PostSend& post = out->emplace<PostSend>();
  post.id = WorkId(++last_work);
  if (teardown.aborted()) return PollAbortConn(&post);
  // Only the end of the link follows the second DisConn.
  if (teardown.over()) return false;
  if (PollHelloAck(&post)) return true;
  if (source.has_staged()) {
    ComposeData(&post);
    return true;
  }
  if (suspension.answer_due()) return PollSuspCommAck(&post);
  if (credit.may_send_control() && (PollZcopyControl(&post) || PollRequest(&post))) return true;
  if (sink_offer.active() && PollSinkAvail(&post)) return true;
  return PollPayload(&post) || PollDisConn(&post) || PollUpdate(&post);
}

bool Rep::PollAbortConn(PostSend* post) {
  if (!teardown.abort_conn_due()) return false;
  Compose(wire::AbortConn{}, MessageKind::kControl, 0, post);
  post->signaled = true;
  teardown.AbortConnTaken(post->id);
  return true;
}

// 8.1.1, 5. HelloAck has no place in the sequence (6.2.2), but takes a buffer.
bool Rep::PollHelloAck(PostSend* post) {
  if (!hello_ack_due) return false;
  hello_ack_due = false;
  const auto bytes = HelloAck();
  std::copy(bytes.begin(), bytes.end(), post->header.begin());
  post->header_size = kHelloAckSize;
  post->solicited = true;
  credit.HelloAckTook();
  return true;
}

// Composes a change of the connection that either peer asks for: of the buffers' size, the mode, or the link.
bool Rep::PollRequest(PostSend* post) {
  if (resizing.ack_due()) {
    resizing.AckTaken(options.receive_buffer_size);
    Compose(wire::ChRcvBufAck{options.receive_buffer_size}, MessageKind::kControl, 0, post);
    return true;
  }
  if (resizing.ask_due()) {
    peer_buffer_size = resizing.AskTaken(credit.sent(), peer_buffer_size);
    Compose(wire::ChRcvBuf{resizing.asked()}, MessageKind::kControl, 0, post);
    return true;
  }
  if (mode_change_possible()) {
    const bool was_pipelined = modes.source() == FlowMode::kPipelined;
    const wire::ModeChange change = modes.TakeChange(credit.sent());
    if (was_pipelined && !change.receivers_source) adverts.LeftPipelined();
    Compose(change, MessageKind::kControl, 0, post);
    return true;
  }
  if (suspend_possible()) {
    // 13.1.1, 2. The answer ends all advertisements.
    Compose(wire::SuspComm{suspension.AskTaken()}, MessageKind::kControl, 0, post);
    return true;
  }
  return false;
}

// Composes payload of the stream (buffered bytes, or the offered buffer), or announces Out-Of-Band data.
bool Rep::PollPayload(PostSend* post) {
  if (pending_bytes() != 0) {
    if (credit.payload_messages() != 0) {
      ComposeData(post);
      return true;
    }
  } else if (source_offer.active() && PollSourceOffer(post)) {
    return true;
  }
  if (!source.announcement_due() || !credit.may_send_control()) return false;
  Compose(wire::Data{}, MessageKind::kControl, source.TakeAnnouncement(), post);
  return true;
}

bool Rep::PollDisConn(PostSend* post) {
  if (!teardown.disconn_due() || source.pending_bytes() != 0 || source_offer.active() ||
      !credit.may_send_control())
    return false;
  Compose(wire::DisConn{}, MessageKind::kControl, 0, post);
  teardown.DisConnTaken();
  adverts.SourceClosed();
  return true;
}

bool Rep::PollUpdate(PostSend* post) {
  const bool offer_waits = source_offer.active() && !source_offer.advertised() && !source_offer.writing();
  const bool waiting = offer_waits || pending_bytes() != 0 || source.stall() != SourceHalf::Stall::kNone;
  const bool nudge = waiting && credit.nudge_due();
  const bool asked = update_asked && credit.may_send_control();
  if (!nudge && !asked && !credit_update_due()) return false;
  Compose(wire::Data{}, MessageKind::kUpdate, 0, post);
  if (nudge) credit.NudgeTaken();
  update_asked = false;
  ++stats.gratuitous_updates_out;
  return true;
}

void Rep::Compose(const wire::Body& body, MessageKind kind, uint8_t flags, PostSend* post, uint32_t payload) {
  wire::Message message{credit.Stamp(kind), body};
  message.bsdh.flags = flags;
  message.bsdh.mid =
      std::visit([](const auto& header) { return std::decay_t<decltype(header)>::kMid; }, body);
  message.bsdh.len = static_cast<uint32_t>(message.header_size()) + payload;
  post->header_size = static_cast<uint8_t>(wire::SerializeTo(message, post->header));
  post->solicited = IsSolicited(message.bsdh.mid, flags);
}

void Rep::ComposeData(PostSend* post) {
  SDP_CHECK(credit.payload_messages() != 0);
  uint8_t flags = 0;
  const size_t payload = source.NextPayload(payload_capacity(), post, &flags);
  StampData(flags, payload, pending_bytes() != 0 || source.writer_expected(),
            std::span(post->header).first<wire::Bsdh::kSize>());
  post->header_size = wire::Bsdh::kSize;
  post->solicited = IsSolicited(wire::Mid::kData, flags);
}

void Rep::StampData(uint8_t flags, size_t payload, bool more,
                    std::span<std::byte, wire::Bsdh::kSize> header) {
  wire::Bsdh bsdh = credit.Stamp(MessageKind::kPayload);
  bsdh.mid = wire::Mid::kData;
  bsdh.flags = flags;
  bsdh.len = static_cast<uint32_t>(wire::Bsdh::kSize + payload);
  bsdh.SerializeTo(header);
  adverts.PayloadSent();
  stats.bcopy_bytes_out += payload;
  NoteDataSent(payload, more);
}

void Rep::NoteDataSent(uint64_t payload, bool more) {
  if (!options.enlarge_remote) return;
  enlargement.DataSent(payload == payload_capacity(), more);
  if (suspension.under_way() ||
      !enlargement.due(credit.peer_initial(), peer_buffer_size, options.desired_remote_size))
    return;
  enlargement.Asked();
  (void)resizing.Ask(options.desired_remote_size, peer_buffer_size);
}

}  // namespace sdp::engine
