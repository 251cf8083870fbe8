// A session over a link that is memory: usual Data passes between the link and the program's memory in one
// copy, past the queues of the engine and the queue pair.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "preload/socket/clock.h"
#include "preload/socket/session.h"
#include "preload/stats_segment.h"
#include "preload/user_memory.h"

namespace sdp::preload {

using DataHeader = std::array<std::byte, engine::kDataHeader>;

// DirectBytes() tells of no more messages than that.
constexpr int kMostLookedAt = 16;

// Returns the link if the next message may be taken off it.
verbs::Direct* Session::DirectLink() const {
  return reads_little_ || link_ended_ || being_read() || moving() ? nullptr : queue_pair_->direct();
}

size_t Session::TrySendDirect(std::span<const Bytes> data) {
  verbs::Direct* const link = queue_pair_->direct();
  if (link == nullptr || data.size() > verbs::Direct::kMostDirectPieces || link_ended_) return 0;
  size_t total = 0;
  for (const Bytes& piece : data) total += piece.size();
  if (!MaySendDirect(total)) return 0;
  SendDirect(data, total);
  FinishDirect();
  return total;
}

void Session::SendDirect(std::span<const Bytes> data, size_t total) {
  changed_ = true;
  DataHeader header;
  engine_->SendDirect(static_cast<uint32_t>(total), header);
  recorder_.NoteSent(header, data, /*solicited=*/false, std::nullopt);
  queue_pair_->direct()->SendDirect(header, data);
}

bool Session::ComesDirect() const {
  verbs::Direct* const link = lent_ ? nullptr : DirectLink();
  if (link == nullptr) return false;
  DataHeader header;
  const auto arrived = link->LookDirect(header);
  return arrived && engine_->may_receive_direct(header, arrived->length);
}

std::optional<uint64_t> Session::DirectBytes() const {
  verbs::Direct* const link = DirectLink();
  if (link == nullptr) return std::nullopt;
  std::optional<verbs::Direct::Arrived> last;
  int messages = 0;
  uint64_t bytes = 0;
  if (lent_) {
    last = lent_->last;
    messages = lent_->messages;
    bytes = lent_->bytes;
  }
  // What stays in the link is credit that the peer does not get.
  const int most = std::min(kMostLookedAt, engine_->receive_buffers() / 4);
  const uint64_t in_link = link->InLink();
  for (;; ++messages) {
    if ((last ? last->end : 0) == in_link) return bytes;
    if (messages >= most) return std::nullopt;
    DataHeader header;
    const auto next = link->LookDirect(header, last ? &*last : nullptr);
    const bool data = next && (last ? engine::Engine::IsPlainData(header, next->length)
                                    : engine_->may_receive_direct(header, next->length));
    if (!data) return std::nullopt;
    bytes += next->length - header.size();
    last = next;
    if (lent_) {
      lent_->last = *last;
      lent_->messages = messages + 1;
      lent_->bytes = bytes;
    }
  }
}

size_t Session::ReceiveDirect(ReceiveCursor* room) {
  verbs::Direct* const link = lent_ ? nullptr : DirectLink();
  if (link == nullptr) return 0;
  size_t taken = 0;
  while (room->left() > 0 && !link_ended_) {
    DataHeader header;
    const auto arrived = link->LookDirect(header);
    if (!arrived || !engine_->may_receive_direct(header, arrived->length)) break;
    const size_t payload = arrived->length - header.size();
    if (payload > room->left()) {
      LendDirect(link, header, *arrived);
      break;
    }
    const auto places = room->Rest(payload);
    if (room->RestIsMore(places) || !room->MayWrite(payload)) break;
    TakeDirect(link, header, *arrived, places);
    room->Advance(payload);
    taken += payload;
    FinishDirect();
  }
  if (taken > 0) read_at_ = CoarseNow();
  return taken;
}

size_t Session::ReceiveAllDirect(MutableBytes room) {
  verbs::Direct* const link = queue_pair_->direct();
  const uint64_t in_link = link->InLink();
  if (in_link == 0) return 0;
  size_t taken = 0;
  do {
    DataHeader header;
    const auto arrived = link->LookDirect(header);
    if (!arrived || !engine_->may_receive_direct(header, arrived->length)) break;
    // Framing needs no room, so one message may fit where its bytes in the link are more.
    if (taken == 0 && arrived->end != in_link && in_link > room.size()) break;
    const size_t payload = arrived->length - header.size();
    if (payload > room.size() - taken || !MayWrite(room.data() + taken, payload)) break;
    const MutableBytes place = room.subspan(taken, payload);
    TakeDirect(link, header, *arrived, {&place, 1});
    taken += payload;
  } while (!engine_->due_after_direct() && link->InLink() != 0);
  if (taken > 0) read_untimed_ = true;
  return taken;
}

std::optional<bool> Session::OneComesDirect() const {
  verbs::Direct* const link = queue_pair_->direct();
  const uint64_t in_link = link->InLink();
  if (in_link == 0) return false;
  DataHeader header;
  const auto arrived = link->LookDirect(header);
  const bool alone =
      arrived && arrived->end == in_link && engine_->may_receive_direct(header, arrived->length);
  return alone ? std::optional(true) : std::nullopt;
}

Time Session::NotedAt() const {
  const uint64_t noted = recorder_.noted_at_ns();
  const uint64_t now = stats::Clock(CLOCK_REALTIME_COARSE);
  const uint64_t ago = noted != 0 && noted < now ? now - noted : 0;
  return CoarseNow() - std::chrono::nanoseconds(std::min<uint64_t>(ago, std::numeric_limits<int64_t>::max()));
}

void Session::TakeDirect(verbs::Direct* link, Bytes header, const verbs::Direct::Arrived& arrived,
                         std::span<const MutableBytes> places) {
  changed_ = true;
  recorder_.NoteReceived({&header, 1}, arrived.length, arrived.solicited, std::nullopt);
  const uint32_t receives = engine_->ReceiveDirect(header.first<engine::kDataHeader>());
  link->TakeDirect(header.size(), places);
  if (receives != 0) queue_pair_->PostReceives(receives);
}

void Session::LendDirect(verbs::Direct* link, Bytes header, const verbs::Direct::Arrived& arrived) {
  changed_ = true;
  read_at_ = CoarseNow();
  const auto [payload, rest] = link->LendDirect(header.size());
  const std::array pieces = {header, payload, rest};
  recorder_.NoteReceived({&header, 1}, arrived.length, arrived.solicited, std::nullopt);
  lent_.emplace(arrived);
  lent_->last.untaken = 0;
  engine_->HandleReceive({.length = arrived.length,
                          .pieces = std::span(pieces).first(rest.empty() ? 2 : 3),
                          .token = kLent,
                          .cost = queue_pair_->ReceiveCost(arrived.length)});
  Pump();
}

// The engine keeps nothing if it has released the message, which the program has read then.
void Session::TakeLentOut() {
  if (!lent_) return;
  lent_.reset();
  engine_->KeepReceived(kLent);
  queue_pair_->direct()->ReturnLent();
}

}  // namespace sdp::preload
