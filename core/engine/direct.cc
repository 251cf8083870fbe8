// The direct way: one usual Data message passes between the link and the program's memory, without an action
// or an input between. Its effects are those of Send() and PollAction(), or of HandleReceive() and Receive().
// ReceiveWithin() takes a part of a message that has come, likewise without an action.
#include <utility>

#include "core/base/check.h"
#include "core/engine/engine.h"
#include "core/engine/rep.h"

namespace sdp::engine {

static_assert(kDataHeader == wire::Bsdh::kSize);

namespace {

bool IsPlainData(const wire::Bsdh& header, uint32_t length) {
  return header.mid == wire::Mid::kData && header.flags == 0 && header.len == length &&
         length > wire::Bsdh::kSize;
}

}  // namespace

bool Rep::IsPlain() const {
  const bool open_both_ways = established && !suspension.under_way() && suspension.may_receive(false) &&
                              teardown.link_up() && !teardown.aborted() && !teardown.send_closed() &&
                              !teardown.peer_closed();
  const bool nothing_due = !hello_ack_due && !pipelined_due && !size_due && receives_to_post == 0 &&
                           releases.empty() && !sink.has_release() && !modes.change_due() &&
                           resizing.at_rest();
  return open_both_ways && nothing_due && source.idle() && adverts.idle() && !source_offer.active() &&
         !sink_offer.active();
}

bool Rep::may_send_direct(size_t size) const {
  return size != 0 && plain() && size <= payload_capacity() && credit.payload_messages() != 0;
}

void Rep::SendDirect(uint32_t size, std::span<std::byte, wire::Bsdh::kSize> header) {
  SDP_DCHECK(may_send_direct(size));
  source.SentDirectly(size);
  StampData(0, size, /*more=*/false, header);
  ++stats.messages_out;
}

bool Rep::may_receive_direct(const wire::Bsdh& header, uint32_t length) const {
  return IsPlainData(header, length) && plain() && sink.takes_directly() &&
         credit.Judge(header, MessageKind::kPayload) == AbortReason::kNone;
}

uint32_t Rep::ReceiveDirect(const wire::Bsdh& header) {
  const auto payload = static_cast<uint32_t>(header.len - wire::Bsdh::kSize);
  SDP_DCHECK(may_receive_direct(header, header.len));
  credit.Take(header, MessageKind::kPayload);
  ++stats.messages_in;
  stats.bcopy_bytes_in += payload;
  sink_offer.HandlePayload();
  sink.PlacedDirectly(payload);
  ++read_edge;
  Repost();
  return std::exchange(receives_to_post, 0);
}

// A message of usual Data may fill its buffer, for which larger ones are asked then. It changes nothing else
// that makes traffic plain.
void Rep::EndDirect() {
  NoteRoom();
  plain_then = resizing.at_rest();
  SDP_DCHECK(*plain_then == IsPlain());
  SDP_DCHECK(IsConsistent());
}

bool Rep::due_after_direct() const { return update_asked || resizing.ask_due() || credit_update_due(); }

// --- the façade's part

bool Engine::plain() const { return rep_->plain() && rep_->sink.takes_directly(); }

uint32_t Engine::readable_piece() const { return rep_->sink.readable_piece(); }

void Engine::ReceiveWithin(MutableBytes out) {
  rep_->sink.ReadWithin(out);
  SDP_DCHECK(rep_->IsConsistent());
}

bool Engine::may_send_direct(size_t size) const { return rep_->may_send_direct(size); }

void Engine::SendDirect(uint32_t size, std::span<std::byte, kDataHeader> header) {
  rep_->SendDirect(size, header);
  rep_->EndDirect();
}

bool Engine::may_receive_direct(std::span<const std::byte, kDataHeader> header, uint32_t length) const {
  return rep_->may_receive_direct(wire::Bsdh::Parse(header), length);
}

bool Engine::IsPlainData(std::span<const std::byte, kDataHeader> header, uint32_t length) {
  return engine::IsPlainData(wire::Bsdh::Parse(header), length);
}

uint32_t Engine::ReceiveDirect(std::span<const std::byte, kDataHeader> header) {
  const uint32_t receives = rep_->ReceiveDirect(wire::Bsdh::Parse(header));
  rep_->EndDirect();
  return receives;
}

bool Engine::due_after_direct() const { return rep_->due_after_direct(); }

}  // namespace sdp::engine
