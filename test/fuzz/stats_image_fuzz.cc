// A stats file from a hostile process: whatever parses is rendered.
#include <cstring>
#include <functional>
#include <string_view>

#include "core/base/check.h"
#include "tools/sdpstat/render.h"

namespace {

// A full header is 4 KiB, and the fall-backs take 32: a short input stands for the header's first bytes, one
// fall-back's record and the slots that follow; the rest is zero.
std::vector<std::byte> Inflate(const uint8_t* data, size_t size) {
  using namespace sdp::stats;
  constexpr size_t kRecord = offsetof(Slot, pad);
  std::vector<std::byte> image(SlotOffset(kFallbackSlots));
  const auto take = [&](size_t offset, size_t most) {
    const size_t n = std::min(size, most);
    image.resize(std::max(image.size(), offset + n));
    if (n != 0) std::memcpy(image.data() + offset, data, n);
    data += n;
    size -= n;
  };
  take(0, sizeof(Header));
  take(SlotOffset(0), kRecord);
  take(SlotOffset(kFallbackSlots), SIZE_MAX);
  return image;
}

// JSON takes longer than all others together: one input in 64 is rendered so.
void Try(sdp::Bytes image, bool as_json) {
  auto process = sdp::stats::ParseImage(image);
  if (!process) return;
  sdp::stats::Snapshot snapshot;
  snapshot.processes.push_back(*process);
  if (as_json) SDP_CHECK(!sdp::sdpstat::RenderJson(snapshot, nullptr).empty());
  sdp::sdpstat::RenderSummary(snapshot);
  std::string table =
      sdp::sdpstat::RenderTable(snapshot, {.header = true, .internals = true, .extended = true});
  for (char c : table) SDP_CHECK(c == '\n' || (c >= ' ' && c <= '~'));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool as_json = std::hash<std::string_view>{}(input) % 64 == 0;
  Try(std::as_bytes(std::span(data, size)), as_json);
  Try(Inflate(data, size), as_json);
  return 0;
}
