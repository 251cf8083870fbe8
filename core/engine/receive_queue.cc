#include "core/engine/receive_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace sdp::engine {
namespace {

constexpr uint32_t kSmallCapacity = 16;

}  // namespace

void ReceiveQueue::Push(std::span<const Bytes> pieces, size_t skip, size_t drop, uint64_t token,
                        uint32_t cost) {
  size_t left = 0;
  for (const Bytes& piece : pieces) left += piece.size();
  SDP_CHECK(left > skip + drop);
  left -= skip + drop;
  bytes_ += left;
  held_cost_ += cost;
  for (const Bytes& piece : pieces) {
    if (skip >= piece.size()) {
      skip -= piece.size();
      continue;
    }
    const size_t n = std::min(piece.size() - skip, left);
    left -= n;
    PushPiece({piece.data() + skip, static_cast<uint32_t>(n), left == 0 ? cost : 0, token, left == 0});
    skip = 0;
    if (left == 0) break;
  }
}

void ReceiveQueue::PushCopy(Bytes bytes, uint32_t cost) {
  SDP_CHECK(!bytes.empty());
  std::byte* const place = Own(bytes.size());
  std::memcpy(place, bytes.data(), bytes.size());
  bytes_ += bytes.size();
  held_cost_ += cost;
  PushPiece({.data = place, .size = static_cast<uint32_t>(bytes.size()), .cost = cost, .owned = true});
}

void ReceiveQueue::InsertCopy(Bytes bytes, uint64_t offset, uint32_t cost) {
  size_t index = consumed_;
  for (; index < size_ && offset > 0; ++index) offset -= std::min<uint64_t>(offset, at(index).size);
  PushCopy(bytes, cost);
  for (size_t i = size_ - 1; i > index; --i) std::swap(at(i), at(i - 1));
}

size_t ReceiveQueue::Read(std::span<const MutableBytes> out, uint64_t limit, bool peek) {
  size_t total = 0;
  size_t index = consumed_;
  size_t offset = 0;  // in the piece at index
  for (MutableBytes to : out) {
    to = to.first(std::min<uint64_t>(to.size(), limit - total));
    while (!to.empty() && index < size_) {
      Piece& piece = at(index);
      const size_t n = std::min<size_t>(to.size(), piece.size - offset);
      // The RNIC may have placed the bytes already.
      if (to.data() != piece.data + offset) std::memmove(to.data(), piece.data + offset, n);
      to = to.subspan(n);
      total += n;
      offset += n;
      if (offset < piece.size) continue;
      if (!peek) Consume(&piece);
      ++index;
      offset = 0;
    }
  }
  if (peek) return total;
  if (offset != 0) {
    Piece& piece = at(index);
    piece.data += offset;
    piece.size -= static_cast<uint32_t>(offset);
  }
  bytes_ -= total;
  return total;
}

void ReceiveQueue::ReadWithin(MutableBytes out) {
  SDP_CHECK(out.size() < oldest_piece());
  Piece& piece = at(consumed_);
  std::memmove(out.data(), piece.data, out.size());
  piece.data += out.size();
  piece.size -= static_cast<uint32_t>(out.size());
  bytes_ -= out.size();
}

void ReceiveQueue::DropAll() {
  while (consumed_ < size_) Consume(&at(consumed_));
  bytes_ = 0;
}

void ReceiveQueue::Keep(uint64_t token) {
  const auto of_message = [&](uint32_t i) { return i < size_ && !at(i).owned && at(i).token == token; };
  uint32_t first = consumed_;
  while (first < size_ && !of_message(first)) ++first;
  if (first == size_) return;
  size_t size = 0;
  for (uint32_t i = first; of_message(i); ++i) size += at(i).size;
  std::byte* const place = Own(size);
  std::byte* to = place;
  for (uint32_t i = first; of_message(i); ++i) {
    Piece& piece = at(i);
    std::memcpy(to, piece.data, piece.size);
    to += piece.size;
    piece.data = place;
    if (piece.last) {
      piece = {.data = place, .size = static_cast<uint32_t>(size), .cost = piece.cost, .owned = true};
      break;
    }
    piece.size = 0;
  }
}

std::optional<uint64_t> ReceiveQueue::PollRelease() {
  while (consumed_ > 0) {
    const Piece piece = at(0);
    head_ = (head_ + 1) & (capacity_ - 1);
    --size_;
    --consumed_;
    if (size_ == 0) {
      if (capacity_ > kSmallCapacity && peak_ <= kSmallCapacity) Resize(kSmallCapacity);
      peak_ = 0;
      owned_.reset();
    }
    if (piece.last) return piece.token;
  }
  return std::nullopt;
}

std::byte* ReceiveQueue::Own(size_t size) {
  std::unique_ptr<Owned> owned(new Owned);
  owned->memory.reset(new std::byte[size]);
  owned->next = std::move(owned_);
  owned_ = std::move(owned);
  return owned_->memory.get();
}

void ReceiveQueue::PushPiece(const Piece& piece) {
  if (size_ == capacity_) Resize(capacity_ == 0 ? 1 : capacity_ * 2);
  at(size_) = piece;
  ++size_;
  peak_ = std::max(peak_, size_);
}

void ReceiveQueue::Resize(uint32_t capacity) {
  std::unique_ptr<Piece[]> slots(new Piece[capacity]);
  for (uint32_t i = 0; i < size_; ++i) slots[i] = at(i);
  slots_ = std::move(slots);
  capacity_ = capacity;
  head_ = 0;
}

void ReceiveQueue::Consume(Piece* piece) {
  held_cost_ -= piece->cost;
  ++consumed_;
}

bool ReceiveQueue::IsConsistent() const {
  return consumed_ <= size_ && size_ <= capacity_ && (bytes_ != 0) == (size_ > consumed_) &&
         (held_cost_ == 0 || size_ > consumed_);
}

}  // namespace sdp::engine
