#include "verbs/softiwarp/local/ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sdp::iwarp {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
// A side stores first (data, or an arm), and then looks at what the other side stores first (an arm, or
// data). Both are in one order of all such stores and looks, so one of the two sides sees the other's.
constexpr auto kOrdered = std::memory_order_seq_cst;

constexpr auto kArmed = static_cast<uint32_t>(ReaderState::kArmed);
constexpr auto kAwake = static_cast<uint32_t>(ReaderState::kAwake);
constexpr auto kGone = static_cast<uint32_t>(ReaderState::kGone);
constexpr auto kAtBell = static_cast<uint32_t>(ReaderState::kAtBell);
// A window that proved too small becomes so many times as large.
constexpr uint32_t kGrowth = 4;

}  // namespace

void InitializeRing(RingControl* control) {
  control->head.store(0, kRelaxed);
  control->tail.store(0, kRelaxed);
  control->window.store(kSmallestWindow, kRelaxed);
  control->reader.store(kArmed, kRelaxed);
  control->writer.store(static_cast<uint32_t>(RoomWanted::kNone), kRelaxed);
  control->cookie.store(0, kRelaxed);
}

// ----------------------------------------------------------------------------------------------------

RingWriter::RingWriter(RingControl* control, MutableBytes data)
    : control_(control), data_(data), tail_(control->tail.load(kAcquire)) {}

std::optional<uint64_t> RingWriter::Used(size_t wanted) {
  const uint64_t head = control_->head.load(kRelaxed);
  const uint32_t window = control_->window.load(kRelaxed);
  if (!std::has_single_bit(window) || window < kSmallestWindow || window > data_.size()) return std::nullopt;
  if (head - tail_ > window || window - (head - tail_) < wanted) tail_ = control_->tail.load(kAcquire);
  const uint64_t used = head - tail_;
  if (used > window) return std::nullopt;
  if (used == 0 && (short_ || wanted > window / 2) && window < data_.size()) {
    short_ = false;
    grown_ = true;
    const uint64_t larger = std::max<uint64_t>(uint64_t{window} * kGrowth, std::bit_ceil(2 * wanted));
    control_->window.store(static_cast<uint32_t>(std::min<uint64_t>(larger, data_.size())), kRelaxed);
  }
  return used;
}

std::optional<size_t> RingWriter::Write(std::span<const iovec> parts, const UnreadPayload* unread) {
  size_t wanted = 0;
  for (const iovec& part : parts) wanted += part.iov_len;
  wanted = std::min(wanted, data_.size());
  const std::optional<uint64_t> used = Used(wanted);
  if (!used) return std::nullopt;
  // The peer may change both in shared memory meanwhile. Whatever they are, the copy stays within data_.
  const uint64_t window = std::min<uint64_t>(control_->window.load(kRelaxed), data_.size());
  const uint64_t head = control_->head.load(kRelaxed);
  if (!std::has_single_bit(window) || window < *used) return std::nullopt;
  uint64_t room = window - *used;
  uint64_t at = head;
  for (const iovec& part : parts) {
    const std::byte* from = static_cast<const std::byte*>(part.iov_base);
    const bool in_memory = unread == nullptr || !unread->Holds(from);
    size_t left = std::min<uint64_t>(part.iov_len, room);
    room -= left;
    while (left > 0) {
      const uint64_t place = at & (window - 1);
      const size_t piece = std::min<uint64_t>(left, window - place);
      if (in_memory) {
        std::memcpy(data_.data() + place, from, piece);
      } else if (!unread->Read(from, data_.subspan(place, piece))) {
        unreadable_ = true;
        return std::nullopt;
      }
      from += piece;
      at += piece;
      left -= piece;
    }
    if (room == 0) break;
  }
  control_->head.store(at, kOrdered);
  if (at - head < wanted) short_ = true;
  return at - head;
}

ReaderState RingWriter::TakeReader() {
  uint32_t state = control_->reader.load(kOrdered);
  while (state == kArmed || state == kAtBell) {
    const auto taken = static_cast<ReaderState>(state);
    if (control_->reader.compare_exchange_weak(state, kAwake, kAcquire, kRelaxed)) return taken;
  }
  return state == kGone ? ReaderState::kGone : ReaderState::kAwake;
}

verbs::BellName RingWriter::bell() const {
  return {.words = {control_->bell[0].load(kRelaxed), control_->bell[1].load(kRelaxed)}};
}

void RingWriter::Arm() {
  const bool grows = short_ && control_->window.load(kRelaxed) < data_.size();
  control_->writer.store(static_cast<uint32_t>(grows ? RoomWanted::kAll : RoomWanted::kHalf), kOrdered);
}

bool RingWriter::armed() const {
  return control_->writer.load(kRelaxed) != static_cast<uint32_t>(RoomWanted::kNone);
}

bool RingWriter::has_room() const {
  const uint64_t used = control_->head.load(kRelaxed) - control_->tail.load(kOrdered);
  const uint32_t window = control_->window.load(kRelaxed);
  return used == 0 || used > window || (used <= window / 2 && !(short_ && window < data_.size()));
}

bool RingWriter::empty() const { return control_->head.load(kRelaxed) == control_->tail.load(kAcquire); }

MutableBytes RingWriter::Shrink() {
  if (!grown_ || !empty()) return {};
  grown_ = false;
  control_->window.store(kSmallestWindow, kRelaxed);
  return data_.subspan(kSmallestWindow);
}

// ----------------------------------------------------------------------------------------------------

RingReader::RingReader(RingControl* control, Bytes data) : control_(control), data_(data) {}

std::optional<size_t> RingReader::Read(std::span<const MutableBytes> parts) {
  const uint64_t head = control_->head.load(kOrdered);
  const uint64_t tail = control_->tail.load(kRelaxed);
  if (head == tail) return 0;
  const uint64_t window = control_->window.load(kRelaxed);
  uint64_t left = head - tail;
  if (!std::has_single_bit(window) || window > data_.size() || left > window) return std::nullopt;
  uint64_t at = tail;
  for (const MutableBytes& part : parts) {
    std::byte* to = part.data();
    size_t room = std::min<uint64_t>(part.size(), left);
    left -= room;
    while (room > 0) {
      const uint64_t place = at & (window - 1);
      const size_t piece = std::min<uint64_t>(room, window - place);
      std::memcpy(to, data_.data() + place, piece);
      to += piece;
      at += piece;
      room -= piece;
    }
    if (left == 0) break;
  }
  control_->tail.store(at, kOrdered);
  return at - tail;
}

bool RingReader::TakeWriter() {
  const uint32_t wanted = control_->writer.load(kOrdered);
  if (wanted == static_cast<uint32_t>(RoomWanted::kNone)) return false;
  const uint64_t used = control_->head.load(kRelaxed) - control_->tail.load(kRelaxed);
  const bool enough = used == 0 || (wanted == static_cast<uint32_t>(RoomWanted::kHalf) &&
                                    used <= control_->window.load(kRelaxed) / 2);
  return enough && control_->writer.exchange(static_cast<uint32_t>(RoomWanted::kNone), kRelaxed) != 0;
}

void RingReader::Arm() { control_->reader.store(kArmed, kOrdered); }

// A writer that has taken an earlier bell may read a mixture of both names. It rings in vain then, and its
// bytes are in the ring before this side looks.
void RingReader::ArmBell(const verbs::BellName& bell, uint64_t cookie) {
  control_->bell[0].store(bell.words[0], kRelaxed);
  control_->bell[1].store(bell.words[1], kRelaxed);
  control_->cookie.store(cookie, kRelaxed);
  control_->reader.store(kAtBell, kOrdered);
}

bool RingReader::TakeBellBack() {
  uint32_t state = kAtBell;
  return control_->reader.compare_exchange_strong(state, kArmed, kOrdered);
}

void RingReader::Leave() { control_->reader.store(kGone, kOrdered); }

bool RingReader::empty() const { return control_->head.load(kOrdered) == control_->tail.load(kRelaxed); }

}  // namespace sdp::iwarp
