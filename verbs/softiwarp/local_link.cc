#include "verbs/softiwarp/local_link.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "verbs/softiwarp/bell.h"
#include "verbs/softiwarp/link_calls.h"

namespace sdp::iwarp {
namespace {

using Kind = LinkResult::Kind;

// Indices that no peer of ours writes.
constexpr LinkResult kBroken{.kind = Kind::kError, .error = EPROTO};

}  // namespace

class LocalLink::RingPeek final : public verbs::Peek {
 public:
  RingPeek(std::shared_ptr<LocalMemory> memory, LocalEnd end)
      : memory_(std::move(memory)), reader_(memory_->Reader(end)), writer_(memory_->Writer(end)) {}
  [[nodiscard]] bool unread() const override {
    return !reader_.empty() || (awaits_room_.load(std::memory_order_relaxed) && writer_.has_room());
  }
  void SetAwaitsRoom(bool awaits) { awaits_room_.store(awaits, std::memory_order_relaxed); }

 private:
  const std::shared_ptr<LocalMemory> memory_;
  const RingReader reader_;
  const RingWriter writer_;
  std::atomic<bool> awaits_room_{false};
};

LocalLink::LocalLink(std::shared_ptr<LocalMemory> memory, LocalEnd end)
    : memory_(std::move(memory)), end_(end), writer_(memory_->Writer(end)), reader_(memory_->Reader(end)) {
  reader_.TakeBellBack();  // another process's, which has left the connection
}

LocalLink::~LocalLink() {
  if (at_bell_) reader_.TakeBellBack();
}

LinkResult LocalLink::Read(const TcpLink& tcp, std::span<const MutableBytes> parts, Look look) {
  if (const auto read = ReadRing(tcp, parts)) return *read;
  if (ended_) return *ended_;
  if (look == Look::kRing || (look == Look::kPoll && !SeesEnd(tcp))) return {.kind = Kind::kWouldBlock};
  LinkResult told = ReadTcp(tcp, look);
  // The peer has not read everything. A doorbell resets the connection if the peer is gone. recv does not
  // tell of a reset behind the peer's FIN.
  if (told.kind == Kind::kEof && !writer_.empty() && ((RingPeer(tcp) && !RingPeer(tcp)) || tcp.Over()))
    told = {.kind = Kind::kError, .error = ECONNRESET};
  // A kernel answers a doorbell that its program has not taken with a reset, too. A peer that means it has
  // left the ring before.
  if (told.kind == Kind::kError && told.error == ECONNRESET && writer_.empty() &&
      writer_.TakeReader() != ReaderState::kGone)
    told = {.kind = Kind::kEof};
  if (told.kind == Kind::kEof || told.kind == Kind::kError) ended_ = told;
  if (const auto read = ReadRing(tcp, parts)) return *read;
  return told.kind == Kind::kOk ? LinkResult{.kind = Kind::kWouldBlock} : told;
}

std::optional<LinkResult> LocalLink::ReadRing(const TcpLink& tcp, std::span<const MutableBytes> parts) {
  const std::optional<size_t> bytes = reader_.Read(parts);
  if (!bytes) return kBroken;
  if (*bytes == 0) return std::nullopt;
  WakeWriter(tcp);
  return LinkResult{.kind = Kind::kOk, .bytes = *bytes};
}

void LocalLink::TakeFromRing(const TcpLink& tcp, const RingReader::Unread& unread, uint64_t bytes) {
  reader_.Take(unread, bytes);
  WakeWriter(tcp);
}

void LocalLink::WakeWriter(const TcpLink& tcp) {
  if (reader_.TakeWriter()) WakePeer(tcp, writer_.TakeReader());
}

// A doorbell that is taken would have to be armed again, and rung.
bool LocalLink::SeesEnd(const TcpLink& tcp) {
  if (end_seen_) return true;
  const auto now = Clock::now();
  if (now - tcp_read_at_ < kEndLook) return false;
  tcp_read_at_ = now;
  return end_seen_ = tcp.PeerEnded();
}

LinkResult LocalLink::ReadTcp(const TcpLink& tcp, Look look) {
  // Who has rung the bell has left no doorbell. Should there be something else, the TCP connection tells.
  if (std::exchange(at_bell_, false) && look == Look::kGoOn && !reader_.armed()) {
    reader_.Arm();
    return {.kind = Kind::kWouldBlock};
  }
  const int error = errno;
  std::array<std::byte, 64> doorbells;
  const MutableBytes room(doorbells);
  const LinkResult told = tcp.Read(std::span(&room, 1));
  errno = error;
  if (!reader_.armed() || reader_.at_bell()) reader_.Arm();
  tcp_read_at_ = Clock::now();
  return told;
}

LinkResult LocalLink::Write(const TcpLink& tcp, std::span<const iovec> parts, const UnreadPayload* file) {
  size_t size = 0;
  for (const iovec& part : parts) size += part.iov_len;
  for (;;) {
    const uint64_t before = writer_.written();
    const std::optional<size_t> bytes = writer_.Write(parts, file);
    if (!bytes) return writer_.unreadable() ? LinkResult{.kind = Kind::kEof} : kBroken;
    if (*bytes > 0 && !Reaches(tcp, before, *bytes)) return {.kind = Kind::kError, .error = EPIPE};
    if (*bytes < size) writer_.Arm();
    if (*bytes > 0) return {.kind = Kind::kOk, .bytes = *bytes};
    if (!writer_.has_room()) return {.kind = Kind::kWouldBlock};
  }
}

LinkResult LocalLink::SendPut(const TcpLink& tcp) {
  const size_t bytes = writer_.Show();
  if (!Reaches(tcp, writer_.written() - bytes, bytes)) return {.kind = Kind::kError, .error = EPIPE};
  return {.kind = Kind::kOk, .bytes = bytes};
}

// Once the connection has ended at its other end, a doorbell finds out whether the peer still reads: as on
// TCP, what comes for a closed socket is answered with a reset. A peer that has read some of it before it
// went has got that.
bool LocalLink::Reaches(const TcpLink& tcp, uint64_t before, size_t bytes) {
  const ReaderState reader = writer_.TakeReader();
  if (reader == ReaderState::kAwake && !ended_) [[likely]]
    return true;
  const bool asked = reader != ReaderState::kAwake && reader != ReaderState::kGone;
  const bool gone = reader == ReaderState::kGone || (asked && !WakePeer(tcp, reader)) ||
                    (!asked && ended_ && !RingPeer(tcp));
  return !gone || writer_.read() - before - 1 < bytes;
}

bool LocalLink::WakePeer(const TcpLink& tcp, ReaderState asked) {
  const auto may_ring = link_calls().may_ring;
  if (ended_ || (may_ring != nullptr && !may_ring())) return RingPeer(tcp);
  if (asked == ReaderState::kAtFutex) {
    writer_.WakeFutex();
  } else if (asked != ReaderState::kAtBell || !RingBell(writer_.bell(), writer_.cookie())) {
    return RingPeer(tcp);
  }
  ++doorbells_;
  return true;
}

bool LocalLink::MaySleep() {
  if (at_bell_ && !reader_.armed()) LeaveBell();
  return !ended_ && reader_.armed() && reader_.empty();
}

bool LocalLink::HearByBell(const verbs::BellName& bell, uint64_t cookie) {
  at_bell_ = true;
  reader_.ArmBell(bell, cookie);
  return reader_.empty();
}

std::optional<verbs::FutexBell> LocalLink::HearByFutex() {
  const std::optional<verbs::FutexBell> bell = reader_.ArmFutex();
  at_bell_ = at_bell_ || bell;
  return bell;
}

bool LocalLink::HearByLink() {
  if (!at_bell_) return true;
  if (!reader_.TakeBellBack()) return false;
  at_bell_ = false;
  return reader_.empty();
}

void LocalLink::LeaveBell() {
  if (std::exchange(at_bell_, false) && !reader_.left()) reader_.Arm();
}

// A connection that is full of doorbells needs no more of them.
bool LocalLink::RingPeer(const TcpLink& tcp) {
  const int error = errno;
  std::byte doorbell = kDoorbell;
  const iovec part{.iov_base = &doorbell, .iov_len = 1};
  const LinkResult sent = tcp.Write(std::span(&part, 1));
  errno = error;
  if (sent.kind == Kind::kOk) ++doorbells_;
  return sent.kind == Kind::kOk || sent.kind == Kind::kWouldBlock;
}

std::shared_ptr<const verbs::Peek> LocalLink::peek() {
  if (peek_ == nullptr) peek_ = std::make_shared<RingPeek>(memory_, end_);
  return peek_;
}

void LocalLink::AwaitRoom() {
  writer_.Arm();
  (void)peek();
  peek_->SetAwaitsRoom(true);
}

void LocalLink::ForgetRoom() {
  if (peek_ != nullptr) peek_->SetAwaitsRoom(false);
}

void LocalLink::GiveBack() {
  if (const MutableBytes unused = writer_.Shrink(); !unused.empty()) memory_->GiveBack(unused);
}

}  // namespace sdp::iwarp
