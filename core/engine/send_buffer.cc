#include "core/engine/send_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace sdp::engine {
namespace {

constexpr size_t kFirstAllocation = 4096;

}  // namespace

size_t SendBuffer::Append(std::span<const Bytes> data, size_t skip) {
  SDP_CHECK(taken_ == 0);
  const size_t total = TotalSize(data);
  const size_t count = std::min(total - skip, room());
  if (count != 0) Copy(data, skip, count);
  return count;
}

void SendBuffer::AppendAll(Bytes data) {
  SDP_CHECK(taken_ == 0);
  if (!data.empty()) Copy({&data, 1}, 0, data.size());
}

void SendBuffer::PrependAll(Bytes data) {
  SendBuffer joined(limit_);
  joined.AppendAll(data);
  if (size_ != 0) {
    std::array<Bytes, 2> pieces;
    const size_t count = Take(size_, &pieces);
    for (size_t i = 0; i < count; ++i) joined.AppendAll(pieces[i]);
  }
  *this = std::move(joined);
}

void SendBuffer::Copy(std::span<const Bytes> data, size_t skip, size_t count) {
  Reserve(size_ + count);
  used_ = true;
  size_t left = count;
  for (const Bytes& piece : data) {
    if (skip >= piece.size()) {
      skip -= piece.size();
      continue;
    }
    Bytes rest = piece.subspan(skip);
    skip = 0;
    rest = rest.first(std::min(rest.size(), left));
    while (!rest.empty()) {
      const size_t tail = (head_ + size_) % capacity_;
      const size_t n = std::min(rest.size(), capacity_ - tail);
      std::memcpy(memory_.get() + tail, rest.data(), n);
      size_ += static_cast<uint32_t>(n);
      left -= n;
      rest = rest.subspan(n);
    }
    if (left == 0) break;
  }
}

size_t SendBuffer::Take(size_t count, std::array<Bytes, 2>* pieces) {
  SDP_CHECK(count <= size_);
  const size_t first = std::min<size_t>(count, capacity_ - head_);
  (*pieces)[0] = {memory_.get() + head_, first};
  (*pieces)[1] = {memory_.get(), count - first};
  head_ = static_cast<uint32_t>((head_ + count) % capacity_);
  size_ -= static_cast<uint32_t>(count);
  taken_ += static_cast<uint32_t>(count);
  return count == first ? 1 : 2;
}

void SendBuffer::Reclaim() {
  taken_ = 0;
  if (size_ == 0) head_ = 0;  // the next bytes are then one piece
}

void SendBuffer::Trim() {
  if (size_ == 0 && taken_ == 0 && !used_) Clear();
  used_ = false;
}

void SendBuffer::Clear() {
  memory_.reset();
  capacity_ = head_ = size_ = taken_ = 0;
}

void SendBuffer::Reserve(size_t size) {
  if (size <= capacity_) return;
  size_t capacity = std::max<size_t>(capacity_, kFirstAllocation);
  while (capacity < size) capacity *= 2;
  capacity = std::max(std::min<size_t>(capacity, limit_), size);
  std::unique_ptr<std::byte[]> memory(new std::byte[capacity]);
  const size_t first = std::min<size_t>(size_, capacity_ - head_);
  if (first != 0) std::memcpy(memory.get(), memory_.get() + head_, first);
  if (size_ != first) std::memcpy(memory.get() + first, memory_.get(), size_ - first);
  memory_ = std::move(memory);
  capacity_ = static_cast<uint32_t>(capacity);
  head_ = 0;
}

}  // namespace sdp::engine
