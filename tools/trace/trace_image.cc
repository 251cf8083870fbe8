#include "tools/trace/trace_image.h"

#include <algorithm>
#include <cstring>

#include "preload/stats_layout.h"

namespace sdp::trace {
namespace {

uint64_t TagAndConnection(Bytes entry) {
  uint64_t word;
  std::memcpy(&word, entry.data() + offsetof(stats::MessageEntry, tag_and_connection), sizeof word);
  return word;
}

void Sanitize(stats::MessageNote& note) {
  if (note.kind > stats::NoteKind::kClosed) note.kind = stats::NoteKind::kNone;
  if (note.direction > stats::NoteDirection::kOut) note.direction = stats::NoteDirection::kIn;
  note.size = std::min<uint8_t>(note.size, stats::kNotedBytes);
}

}  // namespace

std::optional<NotedMessage> ParseEntry(Bytes entry, uint32_t tag) {
  const uint64_t word = TagAndConnection(entry);
  if (word >> 32 != tag) return std::nullopt;
  NotedMessage message;
  message.connection = static_cast<uint32_t>(word);
  std::memcpy(static_cast<void*>(&message.note), entry.data() + offsetof(stats::MessageEntry, words),
              sizeof message.note);
  Sanitize(message.note);
  return message;
}

std::vector<NotedMessage> RecentMessages(Bytes stats_image, size_t index) {
  std::vector<NotedMessage> out;
  if (index < stats::kFallbackSlots) return out;
  std::vector<std::pair<uint32_t, NotedMessage>> found;
  for (size_t i = 0; i < stats::kRecentMessages; ++i) {
    const Bytes entry = stats_image.subspan(
        stats::SlotOffset(index) + offsetof(stats::Slot, recent) + i * sizeof(stats::MessageEntry),
        sizeof(stats::MessageEntry));
    const auto tag = static_cast<uint32_t>(TagAndConnection(entry) >> 32);
    if (tag == 0) continue;
    if (auto message = ParseEntry(entry, tag)) found.emplace_back(tag, *message);
  }
  // A tag wraps after 2^32 messages; what is kept is near together.
  const uint32_t base = found.empty() ? 0 : found.front().first - 0x80000000u;
  std::sort(found.begin(), found.end(),
            [base](const auto& a, const auto& b) { return a.first - base < b.first - base; });
  for (const auto& [tag, message] : found) out.push_back(message);
  return out;
}

}  // namespace sdp::trace
