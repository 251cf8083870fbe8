// Notes of messages from a hostile process: whatever is in them is drawn and captured.
#include <cstring>

#include "core/base/check.h"
#include "preload/stats_layout.h"
#include "tools/trace/capture.h"
#include "tools/trace/follower.h"
#include "tools/trace/ladder.h"

namespace {

void DrawAll(sdp::Bytes entries) {
  sdp::trace::Ladder ladder({.width = 80});
  sdp::trace::Capture capture;
  std::string text;
  size_t captured = 0;
  constexpr size_t kSize = sizeof(sdp::stats::MessageEntry);
  for (; entries.size() >= kSize && captured < 32u << 20; entries = entries.subspan(kSize)) {
    uint64_t word;
    std::memcpy(&word, entries.data(), sizeof word);
    auto message = sdp::trace::ParseEntry(entries.first(kSize), static_cast<uint32_t>(word >> 32));
    SDP_CHECK(message.has_value());
    // Few messages claim any length: a capture of 4 MiB takes a thousand times as long as a header. Which do
    // is as good as random: words of zeros are frequent.
    const uint64_t chance = (word + 1) * 0x9e3779b97f4a7c15 >> 48;
    if (chance % 4096 != 0) message->note.length %= chance % 64 != 0 ? 1u << 10 : 1u << 17;
    text += ladder.Draw(*message);
    captured += capture.Add(*message).size();
  }
  for (const char c : text) SDP_CHECK(c == '\n' || (c >= ' ' && c <= '~'));
}

// Returns a stats file whose first slot with room for messages is in use, and has none.
std::vector<std::byte> ImageOfOneSlot() {
  using namespace sdp::stats;
  std::vector<std::byte> image(SlotOffset(kFallbackSlots + 1));
  const uint64_t magic = kMagic, slots = kFallbackSlots + 1, sequence = 2;
  const uint32_t version = kVersion, header_size = kHeaderSize, slot_size = kSlotSize;
  std::memcpy(image.data() + offsetof(Header, magic), &magic, sizeof magic);
  std::memcpy(image.data() + offsetof(Header, version), &version, sizeof version);
  std::memcpy(image.data() + offsetof(Header, header_size), &header_size, sizeof header_size);
  std::memcpy(image.data() + offsetof(Header, slot_size), &slot_size, sizeof slot_size);
  std::memcpy(image.data() + offsetof(Header, slot_count), &slots, sizeof slots);
  std::byte* const slot = image.data() + SlotOffset(kFallbackSlots);
  std::memcpy(slot, &sequence, sizeof sequence);
  slot[offsetof(Slot, words) + offsetof(ConnectionRecord, kind)] = static_cast<std::byte>(Kind::kConnection);
  return image;
}

// Draws the input as the messages in that slot.
void ReadSlot(sdp::Bytes input) {
  using namespace sdp::stats;
  static std::vector<std::byte> image = ImageOfOneSlot();
  std::byte* const recent = image.data() + SlotOffset(kFallbackSlots) + offsetof(Slot, recent);
  constexpr size_t kRoom = kRecentMessages * sizeof(MessageEntry);
  const size_t used = std::min(input.size(), kRoom);
  std::memcpy(recent, input.data(), used);
  std::memset(recent + used, 0, kRoom - used);
  sdp::trace::Ladder ladder({.width = 40});
  const auto connections = sdp::trace::ConnectionsIn(image);
  SDP_CHECK(connections.size() == 1);
  ladder.Introduce(connections[0].record);
  for (const auto& message : connections[0].recent) ladder.Draw(message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sdp::Bytes input = std::as_bytes(std::span(data, size));
  DrawAll(input);
  ReadSlot(input);
  return 0;
}
