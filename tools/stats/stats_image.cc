#include "tools/stats/stats_image.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace sdp::stats {
namespace {

template <typename T>
T Load(Bytes image, size_t offset) {
  T value;
  std::memcpy(&value, image.data() + offset, sizeof value);
  return value;
}

// Characters that would move a terminal's cursor become question marks.
template <size_t N>
void Sanitize(char (&text)[N]) {
  text[N - 1] = '\0';
  for (char* c = text; *c != '\0'; ++c) {
    if (*c < ' ' || *c > '~') *c = '?';
  }
}

template <typename Enum>
void Clamp(Enum& value, Enum last, Enum otherwise) {
  if (value > last) value = otherwise;
}

void Sanitize(Address& address) {
  if (address.family != 4 && address.family != 6) address = Address();
}

void Sanitize(ConnectionRecord& record) {
  Clamp(record.kind, Kind::kFallback, Kind::kFree);
  Clamp(record.role, Role::kAccepting, Role::kNone);
  if (record.fallback >= FallbackReason::kCount) record.fallback = FallbackReason::kOther;
  Clamp(record.counters.state, State::kUnregistered, State::kNone);
  Clamp(record.counters.source_mode, FlowMode::kPipelined, FlowMode::kBuffered);
  Clamp(record.counters.sink_mode, FlowMode::kPipelined, FlowMode::kBuffered);
  for (Address* address : {&record.local, &record.peer, &record.sdp_local, &record.sdp_peer}) {
    Sanitize(*address);
  }
  Sanitize(record.rnic);
  Sanitize(record.link);
  Sanitize(record.reason);
  Sanitize(record.reason_text);
}

ConnectionRecord LoadRecord(Bytes image, size_t slot) {
  auto record = Load<ConnectionRecord>(image, SlotOffset(slot) + offsetof(Slot, words));
  Sanitize(record);
  return record;
}

TotalsValues LoadTotals(Bytes image) {
  constexpr size_t kAt = offsetof(Header, totals);
  TotalsValues out;
  out.connections_closed = Load<uint64_t>(image, kAt + offsetof(Totals, connections_closed));
  out.connections_aborted = Load<uint64_t>(image, kAt + offsetof(Totals, connections_aborted));
  std::memcpy(out.bytes_in, image.data() + kAt + offsetof(Totals, bytes_in), sizeof out.bytes_in);
  std::memcpy(out.bytes_out, image.data() + kAt + offsetof(Totals, bytes_out), sizeof out.bytes_out);
  std::memcpy(out.fallbacks, image.data() + kAt + offsetof(Totals, fallbacks), sizeof out.fallbacks);
  out.slots_refused = Load<uint64_t>(image, kAt + offsetof(Totals, slots_refused));
  std::memcpy(out.link_in, image.data() + kAt + offsetof(Totals, link_in), sizeof out.link_in);
  std::memcpy(out.link_out, image.data() + kAt + offsetof(Totals, link_out), sizeof out.link_out);
  out.send_stalls = Load<uint64_t>(image, kAt + offsetof(Totals, send_stalls));
  return out;
}

}  // namespace

const char* ToString(ImageError error) {
  switch (error) {
    case ImageError::kTooShort:
      return "too short";
    case ImageError::kNotOurs:
      return "not a stats file";
    case ImageError::kVersion:
      return "of another version";
    case ImageError::kBadLayout:
      return "of a layout that its version does not have";
  }
  return "unknown";
}

Result<size_t, ImageError> CountSlots(Bytes image) {
  if (image.size() < kHeaderSize) return unexpected(ImageError::kTooShort);
  if (Load<uint64_t>(image, offsetof(Header, magic)) != kMagic) return unexpected(ImageError::kNotOurs);
  if (Load<uint32_t>(image, offsetof(Header, version)) != kVersion) return unexpected(ImageError::kVersion);
  if (Load<uint32_t>(image, offsetof(Header, header_size)) != kHeaderSize ||
      Load<uint32_t>(image, offsetof(Header, slot_size)) != kSlotSize) {
    return unexpected(ImageError::kBadLayout);
  }
  auto said = Load<uint64_t>(image, offsetof(Header, slot_count));
  return static_cast<size_t>(std::min<uint64_t>(said, SlotsIn(image.size())));
}

uint64_t SlotSequence(Bytes image, size_t index) {
  return Load<uint64_t>(image, SlotOffset(index) + offsetof(Slot, sequence));
}

std::optional<ConnectionRecord> ParseRecord(Bytes image, size_t index) {
  if (SlotSequence(image, index) % 2 != 0) return std::nullopt;
  const ConnectionRecord record = LoadRecord(image, index);
  if (record.kind == Kind::kFree) return std::nullopt;
  return record;
}

Result<ProcessStats, ImageError> ParseImage(Bytes image) {
  auto slots = CountSlots(image);
  if (!slots) return unexpected(slots.error());
  ProcessStats out;
  out.pid = Load<uint32_t>(image, offsetof(Header, pid));
  out.start_time = Load<uint64_t>(image, offsetof(Header, start_time));
  out.opened_at_ns = Load<uint64_t>(image, offsetof(Header, opened_at_ns));
  char program[sizeof(Header::program)];
  std::memcpy(program, image.data() + offsetof(Header, program), sizeof program);
  Sanitize(program);
  out.program = program;
  out.totals = LoadTotals(image);
  for (size_t i = 0; i < *slots; ++i) {
    if (const auto record = ParseRecord(image, i)) out.records.push_back(*record);
  }
  return out;
}

}  // namespace sdp::stats
