#include "verbs/softiwarp/local/ring.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
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
constexpr auto kAtFutex = static_cast<uint32_t>(ReaderState::kAtFutex);
// A window that proved too small becomes so many times as large.
constexpr uint32_t kGrowth = 4;

// std::has_single_bit() counts bits, which takes a call where the processor is not known to count them.
bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

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

RingWriter::RingWriter(const RingMemory& memory)
    : ring_(memory), tail_(memory.control->tail.load(kAcquire)), grown_(memory.used) {
  memory.control->wakes_futex.store(1, kRelaxed);
}

std::optional<uint64_t> RingWriter::Used(size_t wanted) {
  const uint64_t head = ring_.control->head.load(kRelaxed);
  const uint32_t window = ring_.control->window.load(kRelaxed);
  if (!IsPowerOfTwo(window) || window < kSmallestWindow || window > ring_.data.size()) return std::nullopt;
  if (head - tail_ > window || window - (head - tail_) < wanted) tail_ = ring_.control->tail.load(kAcquire);
  const uint64_t used = head - tail_;
  if (used > window) return std::nullopt;
  if (used == 0 && (short_ || wanted > window / 2) && window < ring_.data.size()) {
    short_ = false;
    grown_ = true;
    const uint64_t larger = std::max<uint64_t>(uint64_t{window} * kGrowth, std::bit_ceil(2 * wanted));
    ring_.control->window.store(static_cast<uint32_t>(std::min<uint64_t>(larger, ring_.data.size())),
                                kRelaxed);
  }
  return used;
}

// The peer may change all of it in shared memory meanwhile. Whatever it is, the copies stay within the ring.
std::optional<uint64_t> RingWriter::Begin(size_t wanted) {
  const std::optional<uint64_t> used = Used(wanted);
  put_window_ = ring_.control->window.load(kRelaxed);
  put_base_ = ring_.Window(put_window_);
  put_from_ = put_at_ = ring_.control->head.load(kRelaxed);
  if (!used || !IsPowerOfTwo(put_window_) || put_window_ > ring_.data.size() || *used > put_window_)
    return std::nullopt;
  return put_window_ - *used;
}

std::optional<size_t> RingWriter::Write(std::span<const iovec> parts, const UnreadPayload* unread) {
  size_t wanted = 0;
  for (const iovec& part : parts) wanted += part.iov_len;
  wanted = std::min(wanted, ring_.data.size());
  std::optional<uint64_t> room = Begin(wanted);
  if (!room) return std::nullopt;
  for (const iovec& part : parts) {
    const Bytes bytes(static_cast<const std::byte*>(part.iov_base), std::min<uint64_t>(part.iov_len, *room));
    *room -= bytes.size();
    if (unread == nullptr || !unread->Holds(bytes.data())) {
      Put(bytes);
    } else if (!PutUnread(*unread, bytes)) {
      unreadable_ = true;
      return std::nullopt;
    }
    if (*room == 0) break;
  }
  const size_t written = Show();
  if (written < wanted) short_ = true;
  return written;
}

bool RingWriter::Reserve(size_t bytes) {
  const std::optional<uint64_t> room = Begin(bytes);
  return room && *room >= bytes;
}

void RingWriter::Put(Bytes bytes) {
  if (bytes.empty()) return;
  const auto [first, rest] = NextPlaces(bytes.size());
  std::memcpy(first.data(), bytes.data(), first.size());
  if (!rest.empty()) std::memcpy(rest.data(), bytes.data() + first.size(), rest.size());
}

bool RingWriter::PutUnread(const UnreadPayload& unread, Bytes bytes) {
  const auto [first, rest] = NextPlaces(bytes.size());
  return (first.empty() || unread.Read(bytes.data(), first)) &&
         (rest.empty() || unread.Read(bytes.data() + first.size(), rest));
}

std::array<MutableBytes, 2> RingWriter::NextPlaces(size_t bytes) {
  const uint64_t place = put_at_ & (put_window_ - 1);
  const size_t first = std::min<uint64_t>(bytes, put_window_ - place);
  put_at_ += bytes;
  return {MutableBytes(put_base_ + place, first), MutableBytes(put_base_, bytes - first)};
}

size_t RingWriter::Show() {
  ring_.control->head.store(put_at_, kOrdered);
  return put_at_ - put_from_;
}

ReaderState RingWriter::TakeReader() {
  uint32_t state = ring_.control->reader.load(kOrdered);
  while (state == kArmed || state == kAtBell || state == kAtFutex) {
    const auto taken = static_cast<ReaderState>(state);
    if (ring_.control->reader.compare_exchange_weak(state, kAwake, kAcquire, kRelaxed)) return taken;
  }
  return state == kGone ? ReaderState::kGone : ReaderState::kAwake;
}

verbs::BellName RingWriter::bell() const {
  return {.words = {ring_.control->bell[0].load(kRelaxed), ring_.control->bell[1].load(kRelaxed)}};
}

void RingWriter::WakeFutex() const {
  const int error = errno;
  ::syscall(SYS_futex, &ring_.control->reader, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  errno = error;
}

void RingWriter::Arm() {
  const bool grows = short_ && ring_.control->window.load(kRelaxed) < ring_.data.size();
  ring_.control->writer.store(static_cast<uint32_t>(grows ? RoomWanted::kAll : RoomWanted::kHalf), kOrdered);
}

bool RingWriter::armed() const {
  return ring_.control->writer.load(kRelaxed) != static_cast<uint32_t>(RoomWanted::kNone);
}

bool RingWriter::has_room() const {
  const uint64_t used = ring_.control->head.load(kRelaxed) - ring_.control->tail.load(kOrdered);
  const uint32_t window = ring_.control->window.load(kRelaxed);
  return used == 0 || used > window || (used <= window / 2 && !(short_ && window < ring_.data.size()));
}

size_t RingWriter::room() const {
  const uint64_t used = ring_.control->head.load(kRelaxed) - ring_.control->tail.load(kAcquire);
  const uint64_t window = ring_.control->window.load(kRelaxed);
  if (used == 0) return ring_.data.size();
  return window < ring_.data.size() || used > window ? SIZE_MAX : window - used;
}

bool RingWriter::empty() const {
  return ring_.control->head.load(kRelaxed) == ring_.control->tail.load(kAcquire);
}

MutableBytes RingWriter::Shrink() {
  if (!grown_ || !empty()) return {};
  grown_ = false;
  ring_.control->window.store(kSmallestWindow, kRelaxed);
  return ring_.data;
}

// ----------------------------------------------------------------------------------------------------

std::optional<RingReader::Unread> RingReader::Look() const {
  const uint64_t head = ring_.control->head.load(kOrdered);
  if (head < seen_) return std::nullopt;
  seen_ = head;
  if (head == tail_) return Unread{};
  const uint64_t window = ring_.control->window.load(kRelaxed);
  if (!IsPowerOfTwo(window) || window > ring_.data.size() || head - tail_ > window) return std::nullopt;
  return Unread{.at = tail_, .size = head - tail_, .window = window, .base = ring_.Window(window)};
}

size_t RingReader::Copy(const Unread& unread, uint64_t from, MutableBytes to) const {
  if (from >= unread.size || to.empty()) return 0;
  const auto [first, rest] = Find(unread, from, to.size());
  std::memcpy(to.data(), first.data(), first.size());
  if (!rest.empty()) std::memcpy(to.data() + first.size(), rest.data(), rest.size());
  return first.size() + rest.size();
}

void RingReader::Take(const Unread& unread, uint64_t bytes) {
  tail_ = unread.at + bytes;
  ring_.control->tail.store(tail_, kOrdered);
}

std::optional<size_t> RingReader::Read(std::span<const MutableBytes> parts) {
  const std::optional<Unread> unread = Look();
  if (!unread) return std::nullopt;
  if (unread->size == 0) return 0;
  uint64_t taken = 0;
  for (const MutableBytes& part : parts) {
    if (!part.empty()) taken += Copy(*unread, taken, part);
    if (taken == unread->size) break;
  }
  Take(*unread, taken);
  return taken;
}

bool RingReader::TakeWriter() {
  const uint32_t wanted = ring_.control->writer.load(kOrdered);
  if (wanted == static_cast<uint32_t>(RoomWanted::kNone)) return false;
  const uint64_t used = ring_.control->head.load(kRelaxed) - ring_.control->tail.load(kRelaxed);
  const bool enough = used == 0 || (wanted == static_cast<uint32_t>(RoomWanted::kHalf) &&
                                    used <= ring_.control->window.load(kRelaxed) / 2);
  return enough && ring_.control->writer.exchange(static_cast<uint32_t>(RoomWanted::kNone), kRelaxed) != 0;
}

void RingReader::Arm() { ring_.control->reader.store(kArmed, kOrdered); }

// A writer that has taken an earlier bell may read a mixture of both names. It rings in vain then, and its
// bytes are in the ring before this side looks.
void RingReader::ArmBell(const verbs::BellName& bell, uint64_t cookie) {
  ring_.control->bell[0].store(bell.words[0], kRelaxed);
  ring_.control->bell[1].store(bell.words[1], kRelaxed);
  ring_.control->cookie.store(cookie, kRelaxed);
  ring_.control->reader.store(kAtBell, kOrdered);
}

std::optional<verbs::FutexBell> RingReader::ArmFutex() {
  std::atomic<uint32_t>& reader = ring_.control->reader;
  if (ring_.control->wakes_futex.load(kRelaxed) != 1) return std::nullopt;
  reader.store(kAtFutex, kOrdered);
  uint32_t state = kAtFutex;
  if (!empty()) reader.compare_exchange_strong(state, kAwake, kOrdered);
  return verbs::FutexBell{.word = &reader, .unrung = kAtFutex};
}

bool RingReader::TakeBellBack() {
  uint32_t state = ring_.control->reader.load(kRelaxed);
  return (state == kAtBell || state == kAtFutex) &&
         ring_.control->reader.compare_exchange_strong(state, kArmed, kOrdered);
}

void RingReader::Leave() { ring_.control->reader.store(kGone, kOrdered); }

bool RingReader::empty() const {
  // Acquire: a thread that sees the last bytes taken also sees what their reader did before.
  return ring_.control->head.load(kOrdered) == ring_.control->tail.load(kAcquire);
}

}  // namespace sdp::iwarp
