// The queue pair on a link that is memory: looks without a system call, and messages past the queues.
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "verbs/softiwarp/soft_qp.h"

namespace sdp::iwarp {
namespace {

using verbs::ReadStatus;

}  // namespace

ReadStatus LocalAbilities::ReadForSolicited() { return qp_.ReadLink(); }

bool LocalAbilities::has_untold() const { return !qp_.read_ended_ && link_.unread(); }

ReadStatus LocalAbilities::PollLink(PollFor wanted) {
  const auto look = wanted == PollFor::kSleep ? LocalLink::Look::kRing : LocalLink::Look::kPoll;
  if (!qp_.read_ended_ && qp_.send_queue_.empty() && !qp_.link_full_ && !link_.WorthRead(qp_.link_, look))
    return ReadStatus::kWouldBlock;
  polling_ = wanted;
  const ReadStatus status = qp_.ReadSome();
  polling_.reset();
  return status;
}

bool LocalAbilities::may_sleep() {
  return !qp_.read_ended_ && qp_.ready_.empty() && link_.MaySleep() &&
         (qp_.link_full_ ? !link_.has_room() : qp_.send_queue_.empty() || !qp_.may_send());
}

LinkResult LocalAbilities::Read(std::span<const MutableBytes> parts, bool came) {
  found_.still_next = false;
  using Look = LocalLink::Look;
  const Look look = polling_ == PollFor::kSleep ? Look::kRing
                    : polling_                  ? Look::kPoll
                    : came                      ? Look::kGoOn
                                                : Look::kDrain;
  return link_.Read(qp_.link_, parts, look);
}

std::optional<verbs::Direct::Arrived> LocalAbilities::LookDirect(MutableBytes header, const Arrived* before) {
  if (qp_.read_ended_ || !qp_.ready_.empty() || !qp_.send_queue_.empty() || !qp_.stream_.between_segments())
    return std::nullopt;
  if (before == nullptr && found_.still_next && found_.message.length >= header.size()) {
    std::copy_n(found_.header.begin(), header.size(), header.begin());
    return found_.message;
  }
  const RingReader::Unread there = link_.LookAtRing();
  const uint64_t from = before != nullptr ? before->end : 0;
  const uint32_t ahead = before != nullptr ? before->untaken : 0;
  std::array<std::byte, ReceiveStream::kUsualPrefix + kMostHeader> first{};
  if (there.size < from + ReceiveStream::kUsualPrefix) return std::nullopt;
  link_.CopyFromRing(there, from, first);
  const auto usual = qp_.stream_.FindUsualSend(first.data(), there.size - from, ahead);
  if (!usual || usual->length < header.size()) return std::nullopt;
  std::copy_n(first.begin() + ReceiveStream::kUsualPrefix, header.size(), header.begin());
  const Arrived message = {.length = usual->length,
                           .solicited = usual->solicited,
                           .end = from + usual->fpdu,
                           .untaken = ahead + 1};
  if (before == nullptr) {
    found_.there = there;
    found_.message = message;
    std::copy_n(first.begin() + ReceiveStream::kUsualPrefix, kMostHeader, found_.header.begin());
    found_.still_next = true;
  }
  return message;
}

void LocalAbilities::TakeDirect(size_t header, std::span<const MutableBytes> payload) {
  uint64_t from = ReceiveStream::kUsualPrefix + header;
  for (const MutableBytes& piece : payload) {
    link_.CopyFromRing(found_.there, from, piece);
    from += piece.size();
  }
  link_.TakeFromRing(qp_.link_, found_.there, found_.message.end);
  NoteDirect();
}

std::array<Bytes, 2> LocalAbilities::LendDirect(size_t header) {
  NoteDirect();
  const uint64_t from = ReceiveStream::kUsualPrefix + header;
  return link_.FindInRing(found_.there, from, found_.message.length - header);
}

void LocalAbilities::ReturnLent() { link_.TakeFromRing(qp_.link_, found_.there, found_.message.end); }

void LocalAbilities::NoteDirect() {
  found_.still_next = false;
  qp_.stream_.TakeUsualSend();
  qp_.placed_then_ = qp_.stream_.placed();
  ++qp_.counters_.read_calls;
  qp_.counters_.bytes_in += found_.message.end;
}

bool LocalAbilities::MaySendDirect(size_t size) {
  return qp_.send_queue_.MayFrameDirectly(size) && qp_.may_post() && qp_.may_send() &&
         link_.Reserve(SendQueue::FramedSize(size));
}

void LocalAbilities::SendDirect(Bytes header, std::span<const Bytes> payload) {
  static constexpr std::array<std::byte, kMaxTrailer> kTrailer{};
  std::array<std::byte, SendQueue::kDirectPrefix + kMostHeader> front;
  const auto size = static_cast<uint32_t>(header.size() + TotalSize(payload));
  const size_t trailer =
      qp_.send_queue_.FrameDirectly(size, std::span(front).first<SendQueue::kDirectPrefix>());
  std::copy(header.begin(), header.end(), front.begin() + SendQueue::kDirectPrefix);
  link_.Put(Bytes(front).first(SendQueue::kDirectPrefix + header.size()));
  for (const Bytes& piece : payload) link_.Put(piece);
  link_.Put(Bytes(kTrailer).first(trailer));
  qp_.send_queue_.NoteFramed();
  qp_.files_.ForgetRoom();  // the peer may have told of it, and there is less now
  const LinkResult sent = link_.SendPut(qp_.link_);
  ++qp_.counters_.write_calls;
  qp_.counters_.bytes_out += sent.bytes;
  if (sent.kind != LinkResult::Kind::kOk) qp_.StopSending();
}

}  // namespace sdp::iwarp
