#include "preload/socket/session_direct.h"

#include <algorithm>
#include <array>

#include "preload/user_memory.h"

namespace sdp::preload {

using DataHeader = std::array<std::byte, engine::kDataHeader>;

// BytesInLink() tells of no more messages than that.
constexpr int kMostLookedAt = 16;

size_t Session::Direct::TrySend(std::span<const Bytes> data) {
  const bool can = s_.queue_pair_->direct_send() != nullptr && !s_.link_ended_;
  if (!can || data.size() > verbs::DirectSend::kMostDirectPieces) return 0;
  const uint64_t total = TotalSize(data);
  if (!MaySend(total)) return 0;
  Send(data, total);
  Finish();
  return total;
}

void Session::Direct::Send(std::span<const Bytes> data, size_t total) {
  s_.changed_ = true;
  DataHeader header;
  s_.engine_->SendDirect(static_cast<uint32_t>(total), header);
  s_.recorder_.NoteSent(header, data, /*solicited=*/false, std::nullopt);
  s_.queue_pair_->direct_send()->SendDirect(header, data);
}

bool Session::Direct::Comes() const {
  verbs::Direct* const link = s_.lent_ ? nullptr : Link();
  if (link == nullptr) return false;
  DataHeader header;
  const auto arrived = link->LookDirect(header);
  return arrived && s_.engine_->may_receive_direct(header, arrived->length);
}

std::optional<uint64_t> Session::Direct::BytesInLink() const {
  verbs::Direct* const link = Link();
  if (link == nullptr) return std::nullopt;
  std::optional<verbs::Direct::Arrived> last;
  int messages = 0;
  uint64_t bytes = 0;
  if (s_.lent_) {
    last = s_.lent_->last;
    messages = s_.lent_->messages;
    bytes = s_.lent_->bytes;
  }
  // What stays in the link is credit that the peer does not get.
  const int most = std::min(kMostLookedAt, s_.engine_->receive_buffers() / 4);
  const uint64_t in_link = link->InLink();
  for (;; ++messages) {
    if ((last ? last->end : 0) == in_link) return bytes;
    if (messages >= most) return std::nullopt;
    DataHeader header;
    const auto next = link->LookDirect(header, last ? &*last : nullptr);
    const bool data = next && (last ? engine::Engine::IsPlainData(header, next->length)
                                    : s_.engine_->may_receive_direct(header, next->length));
    if (!data) return std::nullopt;
    bytes += next->length - header.size();
    last = next;
    if (s_.lent_) {
      s_.lent_->last = *last;
      s_.lent_->messages = messages + 1;
      s_.lent_->bytes = bytes;
    }
  }
}

size_t Session::Direct::Receive(ReceiveCursor* room) {
  verbs::Direct* const link = s_.lent_ ? nullptr : Link();
  if (link == nullptr) return 0;
  size_t taken = 0;
  while (room->left() > 0 && !s_.link_ended_) {
    DataHeader header;
    const auto arrived = link->LookDirect(header);
    if (!arrived || !s_.engine_->may_receive_direct(header, arrived->length)) break;
    const size_t payload = arrived->length - header.size();
    if (payload > room->left()) {
      Lend(link, header, *arrived);
      break;
    }
    const auto places = room->Rest(payload);
    if (room->RestIsMore(places) || !room->MayWrite(payload)) break;
    Take(link, header, *arrived, places);
    room->Advance(payload);
    taken += payload;
    Finish();
  }
  if (taken > 0) s_.reads_.Note();
  return taken;
}

size_t Session::Direct::ReceiveAll(MutableBytes room) {
  verbs::Direct* const link = s_.queue_pair_->direct();
  const uint64_t in_link = link->InLink();
  if (in_link == 0) return 0;
  size_t taken = 0;
  do {
    DataHeader header;
    const auto arrived = link->LookDirect(header);
    if (!arrived || !s_.engine_->may_receive_direct(header, arrived->length)) break;
    // Framing needs no room, so one message may fit where its bytes in the link are more.
    if (taken == 0 && arrived->end != in_link && in_link > room.size()) break;
    const size_t payload = arrived->length - header.size();
    if (payload > room.size() - taken || !MayWrite(room.data() + taken, payload)) break;
    const MutableBytes place = room.subspan(taken, payload);
    Take(link, header, *arrived, {&place, 1});
    taken += payload;
  } while (!s_.engine_->due_after_direct() && link->InLink() != 0);
  if (taken > 0) s_.reads_.NoteUntimed();
  return taken;
}

std::optional<bool> Session::Direct::OneComes() const {
  verbs::Direct* const link = s_.queue_pair_->direct();
  const uint64_t in_link = link->InLink();
  if (in_link == 0) return false;
  DataHeader header;
  const auto arrived = link->LookDirect(header);
  const bool alone =
      arrived && arrived->end == in_link && s_.engine_->may_receive_direct(header, arrived->length);
  return alone ? std::optional(true) : std::nullopt;
}

void Session::Direct::Take(verbs::Direct* link, Bytes header, const verbs::Direct::Arrived& arrived,
                           std::span<const MutableBytes> places) {
  s_.changed_ = true;
  s_.recorder_.NoteReceived({&header, 1}, arrived.length, arrived.solicited, std::nullopt);
  const uint32_t receives = s_.engine_->ReceiveDirect(header.first<engine::kDataHeader>());
  link->TakeDirect(header.size(), places);
  if (receives != 0) s_.queue_pair_->PostReceives(receives);
}

void Session::Direct::Lend(verbs::Direct* link, Bytes header, const verbs::Direct::Arrived& arrived) {
  s_.changed_ = true;
  s_.reads_.Note();
  const auto [payload, rest] = link->LendDirect(header.size());
  const std::array pieces = {header, payload, rest};
  s_.recorder_.NoteReceived({&header, 1}, arrived.length, arrived.solicited, std::nullopt);
  s_.lent_.emplace(arrived);
  s_.lent_->last.untaken = 0;
  s_.engine_->HandleReceive({.length = arrived.length,
                             .pieces = std::span(pieces).first(rest.empty() ? 2 : 3),
                             .token = kLent,
                             .cost = s_.queue_pair_->ReceiveCost(arrived.length)});
  s_.Pump();
}

// The engine keeps nothing if it has released the message, which the program has read then.
void Session::Direct::TakeLentOut() {
  if (!s_.lent_) return;
  s_.lent_.reset();
  s_.engine_->KeepReceived(kLent);
  s_.queue_pair_->direct()->ReturnLent();
}

}  // namespace sdp::preload
