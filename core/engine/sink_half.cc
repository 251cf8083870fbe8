#include "core/engine/sink_half.h"

#include <algorithm>

#include "core/engine/credit_ledger.h"

namespace sdp::engine {
namespace {

// However short it is, a held message costs a place in the queue.
constexpr uint32_t kMinHeldCost = 256;

}  // namespace

bool SinkHalf::HandlePayload(std::span<const Bytes> pieces, size_t header, uint64_t token, uint32_t cost,
                             bool last_is_urgent) {
  size_t length = 0;
  for (const Bytes& piece : pieces) length += piece.size();
  length -= header;
  size_t drop = 0;
  if (last_is_urgent) {
    drop = urgent_.is_inline() ? 0 : 1;
    std::byte value{};
    for (const Bytes& piece : pieces) value = piece.empty() ? value : piece.back();
    urgent_.Arrived(value, read_bytes_ + queue_.bytes() + length - 1);
  }
  if (closed_) {
    refused_ = true;
    return false;
  }
  if (length == drop) return false;
  queue_.Push(pieces, header, drop, token, std::max(cost, kMinHeldCost));
  return true;
}

void SinkHalf::SetUrgentInline(bool value) {
  urgent_.set_inline(value);
  if (!value || closed_ || !urgent_.peek() || !urgent_.mark()) return;
  const std::byte late = *urgent_.Take();
  queue_.InsertCopy({&late, 1}, *urgent_.mark() - read_bytes_, kMinHeldCost);
}

void SinkHalf::PlacedAside(Bytes bytes) {
  if (bytes.empty()) return;
  if (closed_) {
    refused_ = true;
    return;
  }
  queue_.PushCopy(bytes, std::max(static_cast<uint32_t>(bytes.size()), kMinHeldCost));
}

size_t SinkHalf::Read(std::span<const MutableBytes> out, bool peek) {
  const size_t count = queue_.Read(out, urgent_.Limit(read_bytes_, queue_.bytes()), peek);
  if (!peek) {
    read_bytes_ += count;
    urgent_.Passed(read_bytes_);
  }
  return count;
}

void SinkHalf::Close() {
  closed_ = true;
  DropAll();
}

void SinkHalf::DropAll() {
  read_bytes_ += queue_.bytes();
  queue_.DropAll();
}

uint32_t SinkHalf::Window() const { return BuffersWithin(options_.receive_limit); }

uint32_t SinkHalf::PostedTarget() const {
  const uint64_t held = queue_.held_cost();
  const uint64_t room = options_.receive_limit > held ? options_.receive_limit - held : 0;
  return BuffersWithin(room);
}

// Nearly always all of them fit: a division would cost as much as the rest.
uint32_t SinkHalf::BuffersWithin(uint64_t room) const {
  if (room >= uint64_t{options_.receive_buffers} * options_.receive_buffer_size)
    return options_.receive_buffers;
  const uint64_t fitting = std::max<uint64_t>(room / options_.receive_buffer_size, CreditLedger::kReserve);
  return static_cast<uint32_t>(std::min<uint64_t>(fitting, options_.receive_buffers));
}

}  // namespace sdp::engine
