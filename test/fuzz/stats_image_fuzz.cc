// A stats file from a hostile process: whatever parses is rendered.
#include <cstring>

#include "core/base/check.h"
#include "tools/sdpstat/render.h"

namespace {

// A full header is 4 KiB: a short input stands for the header's first bytes and the used slots, the rest is
// zero.
std::vector<std::byte> Inflate(const uint8_t* data, size_t size) {
  using namespace sdp::stats;
  constexpr size_t kShortHeader = sizeof(Header);
  std::vector<std::byte> image(kHeaderSize);
  std::memcpy(image.data(), data, std::min(size, kShortHeader));
  if (size > kShortHeader) {
    image.resize(kHeaderSize + size - kShortHeader);
    std::memcpy(image.data() + kHeaderSize, data + kShortHeader, size - kShortHeader);
  }
  return image;
}

void Try(sdp::Bytes image) {
  auto process = sdp::stats::ParseImage(image);
  if (!process) return;
  sdp::stats::Snapshot snapshot;
  snapshot.processes.push_back(*process);
  SDP_CHECK(!sdp::sdpstat::RenderJson(snapshot, nullptr).empty());
  sdp::sdpstat::RenderSummary(snapshot);
  std::string table = sdp::sdpstat::RenderTable(snapshot, {.header = true, .internals = true, .extended = true});
  for (char c : table) SDP_CHECK(c == '\n' || (c >= ' ' && c <= '~'));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Try(std::as_bytes(std::span(data, size)));
  Try(Inflate(data, size));
  return 0;
}
