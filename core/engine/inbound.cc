// A received message: parsed once, checked against sequence and credit, then passed to the part that handles
// it.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/engine/rep.h"

namespace sdp::engine {
namespace {

// Returns the beginning of a message in one piece, for the parser. Uses `scratch` only if the link delivered
// it in several pieces.
Bytes Prefix(std::span<const Bytes> pieces, std::array<std::byte, wire::kMaxHeaderSize>* scratch) {
  if (!pieces.empty() && pieces[0].size() >= wire::kMaxHeaderSize)
    return pieces[0].first(wire::kMaxHeaderSize);
  size_t size = 0;
  for (const Bytes& piece : pieces) {
    const size_t n = std::min(piece.size(), scratch->size() - size);
    if (n != 0) std::memcpy(scratch->data() + size, piece.data(), n);
    size += n;
  }
  return Bytes(*scratch).first(size);
}

MessageKind KindOf(const wire::Message& message) {
  if (message.payload_size() != 0) return MessageKind::kPayload;
  const bool flagged = (message.bsdh.flags & (wire::kOobPres | wire::kOobPend)) != 0;
  return std::holds_alternative<wire::Data>(message.body) && !flagged ? MessageKind::kUpdate
                                                                      : MessageKind::kControl;
}

template <typename T, typename... Ts>
inline constexpr bool kIsOneOf = (std::is_same_v<T, Ts> || ...);

}  // namespace

AbortReason ReasonFor(wire::WireError error) {
  switch (error) {
    case wire::WireError::kShort:
      return AbortReason::kShortMessage;
    case wire::WireError::kLength:
      return AbortReason::kLengthMismatch;
    case wire::WireError::kReservedMid:
    case wire::WireError::kExperimentalMid:
      return AbortReason::kUnknownMid;
    case wire::WireError::kAdvertisedLength:
      return AbortReason::kBadAdvertisement;
    case wire::WireError::kReservedMode:
      return AbortReason::kBadModeChange;
    case wire::WireError::kSuspCommConstant:
      return AbortReason::kUnexpectedMid;
  }
  return AbortReason::kUnknownMid;
}

void Rep::HandleReceive(const ReceivedMessage& received) {
  bool kept = false;
  if (!teardown.aborted()) {
    const AbortReason reason = HandleMessage(received, &kept);
    if (reason != AbortReason::kNone) {
      Fail(reason);
      ++read_edge;
    } else {
      Repost();
    }
  }
  if (!kept) releases.push_back(received.token);
}

AbortReason Rep::HandleMessage(const ReceivedMessage& received, bool* kept) {
  std::array<std::byte, wire::kMaxHeaderSize> scratch;
  const auto message = wire::Parse(Prefix(received.pieces, &scratch), received.length);
  if (!message) return ReasonFor(message.error());
  ++stats.messages_in;
  if (!established) {
    if (role == Role::kAccepting || !hello_done) return AbortReason::kUnexpectedMid;
    if (const auto reason = HandleHelloAck(*message); reason != AbortReason::kNone) return reason;
    credit.HelloAckTaken();
    ++read_edge;
    return AbortReason::kNone;
  }
  const bool is_ack = std::holds_alternative<wire::SuspCommAck>(message->body);
  if (!suspension.may_receive(is_ack)) return AbortReason::kAfterSuspend;  // 13.1.1, 2 and 3
  if (const auto reason = credit.HandleMessage(message->bsdh, KindOf(*message)); reason != AbortReason::kNone)
    return reason;
  resizing.MessageReceived();
  BeginPipelined();
  // 9.2, 9.3: the peer may invalidate only an STag that we advertised, with the message that completes it.
  if (received.invalidated && !std::holds_alternative<wire::RdmaRdCompl>(message->body) &&
      !std::holds_alternative<wire::RdmaWrCompl>(message->body)) {
    return AbortReason::kBadInvalidate;
  }
  return Dispatch(*message, received, kept);
}

AbortReason Rep::Dispatch(const wire::Message& message, const ReceivedMessage& received, bool* kept) {
  const uint8_t flags = message.bsdh.flags;
  if ((flags & wire::kOobPres) &&
      (!std::holds_alternative<wire::Data>(message.body) || message.payload_size() == 0)) {
    return AbortReason::kBadFlags;  // 6.1.2
  }
  if (const auto reason = sink.urgent().HandleFlags(flags); reason != AbortReason::kNone) return reason;
  if (flags & wire::kOobPend) ++read_edge;

  const AbortReason reason = std::visit(
      [&](const auto& header) -> AbortReason {
        using H = std::decay_t<decltype(header)>;
        if constexpr (std::is_same_v<H, wire::SrcAvail>) {
          return HandleSrcAvail(header, message.payload_size());
        } else if constexpr (std::is_same_v<H, wire::SinkAvail>) {
          return HandleSinkAvail(header, message.payload_size());
        } else if constexpr (std::is_same_v<H, wire::SendSm>) {
          return HandleSendSm();
        } else if constexpr (std::is_same_v<H, wire::RdmaRdCompl>) {
          FollowHint(flags);
          return HandleRdmaRdCompl(header, received.invalidated);
        } else if constexpr (std::is_same_v<H, wire::RdmaWrCompl>) {
          FollowHint(flags);
          return HandleRdmaWrCompl(header, received.invalidated);
        } else if constexpr (std::is_same_v<H, wire::SinkCancelAck>) {
          const auto bad = sink_offer.HandleSinkCancelAck();
          ++read_edge;
          return bad;
        } else if constexpr (std::is_same_v<H, wire::Data>) {
          return adverts.HandlePayload(message.payload_size());
        } else if constexpr (std::is_same_v<H, wire::ModeChange>) {
          return HandleModeChange(header);
        } else if constexpr (std::is_same_v<H, wire::SrcAvailCancel>) {
          HandleSrcAvailCancel();
          return AbortReason::kNone;
        } else if constexpr (std::is_same_v<H, wire::SinkAvailCancel>) {
          ++stats.cancels_in;
          adverts.HandleSinkAvailCancel();
          return AbortReason::kNone;
        } else if constexpr (std::is_same_v<H, wire::ChRcvBuf>) {
          return HandleChRcvBuf(header);
        } else if constexpr (std::is_same_v<H, wire::ChRcvBufAck>) {
          const auto bad = resizing.HandleChRcvBufAck(header.act_sz);
          if (bad == AbortReason::kNone) peer_buffer_size = header.act_sz;
          return bad;
        } else if constexpr (std::is_same_v<H, wire::SuspComm>) {
          adverts.Settle();
          return suspension.HandleSuspComm(header.port, role);
        } else if constexpr (std::is_same_v<H, wire::SuspCommAck>) {
          return HandleSuspCommAck();
        } else if constexpr (std::is_same_v<H, wire::DisConn>) {
          return HandleDisConn();
        } else if constexpr (std::is_same_v<H, wire::AbortConn>) {
          return AbortReason::kPeerAborted;
        } else {
          // Hello and HelloAck come only once, before this point.
          static_assert(kIsOneOf<H, wire::Hello, wire::HelloAck>);
          return AbortReason::kUnexpectedMid;
        }
      },
      message.body);
  if (reason != AbortReason::kNone || message.payload_size() == 0) return reason;
  return HandlePayload(message, received, kept);
}

AbortReason Rep::HandleModeChange(const wire::ModeChange& change) {
  const auto bad = modes.HandleModeChange(change, adverts.unanswered());
  if (bad == AbortReason::kNone && modes.sink() == FlowMode::kCombined) {
    sink_offer.Unadvertise();  // figure 29
    ++read_edge;
  }
  return bad;
}

AbortReason Rep::HandleChRcvBuf(const wire::ChRcvBuf& request) {
  // Mutual if the peer had not seen our request.
  const bool mutual = resizing.outstanding() && credit.acknowledged() <= resizing.asked_in();
  const uint32_t old = options.receive_buffer_size;
  const auto bad = resizing.HandleChRcvBuf(request.des_sz, role, mutual, options.receive_buffer_limit,
                                           credit.posted(), &options.receive_buffer_size);
  resizing.set_limit_before(options.receive_limit);
  if (options.receive_buffer_size > old) options.receive_limit = LimitWhenEnlarged(options);
  size_due = size_due || options.receive_buffer_size != old;
  return bad;
}

AbortReason Rep::HandleSuspCommAck() {
  if (const auto bad = suspension.HandleSuspCommAck(); bad != AbortReason::kNone) return bad;
  LapseOffers();
  ++read_edge;
  return AbortReason::kNone;
}

AbortReason Rep::HandleDisConn() {
  if (teardown.peer_done()) return AbortReason::kDataAfterDisConn;
  if (const auto bad = adverts.HandleDisConn(); bad != AbortReason::kNone) return bad;
  teardown.HandleDisConn();
  sink_offer.Finish();
  ++read_edge;
  return AbortReason::kNone;
}

AbortReason Rep::HandlePayload(const wire::Message& message, const ReceivedMessage& received, bool* kept) {
  if (teardown.peer_closed()) return AbortReason::kDataAfterDisConn;
  (std::holds_alternative<wire::SinkAvail>(message.body) ? stats.transaction_bytes_in
                                                         : stats.bcopy_bytes_in) += message.payload_size();
  sink_offer.HandlePayload();
  const bool urgent = (message.bsdh.flags & wire::kOobPres) != 0;
  *kept = sink.HandlePayload(received.pieces, message.header_size(), received.token, received.cost, urgent);
  ++read_edge;
  return AbortReason::kNone;
}

void Rep::FollowHint(uint8_t flags) {
  if (!options.follow_hints) return;
  // 6.1.2: without the bit the peer prefers Combined Mode.
  const bool pipelined = (flags & wire::kReqPipe) != 0;
  if (modes.source() == (pipelined ? FlowMode::kCombined : FlowMode::kPipelined)) {
    const FlowMode wanted = pipelined ? FlowMode::kPipelined : FlowMode::kCombined;
    (void)modes.Request(Half::kSource, wanted, credit.acknowledged());
  }
}

void Rep::Repost() {
  if (!established || teardown.aborted() || !teardown.link_up() || suspension.silent()) return;
  uint32_t target = sink.PostedTarget() + credit.behind_held_ack();
  if (credit.echo_over() && sink.may_exceed_limit()) target = std::max(target, CreditLedger::kReserve + 1);
  if (target <= credit.posted()) return;
  const uint32_t more = target - credit.posted();
  credit.Post(more);
  receives_to_post += more;
}

void Rep::Fail(AbortReason reason) {
  // An AbortConn is not answered with another, because its sender no longer listens.
  const bool may_tell = established && credit.may_send_control() && !suspension.silent();
  teardown.Abort(reason, may_tell && reason != AbortReason::kPeerAborted);
  source.Clear();  // 8.2.2: unsent data is discarded
  FinishOffers();
}

}  // namespace sdp::engine
