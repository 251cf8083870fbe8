// What another program says of its sockets: refused, or of another build, or it packs to the same bytes
// again.
#include <algorithm>
#include <span>

#include "core/base/check.h"
#include "preload/socket/handover.h"

using sdp::preload::Handover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sdp::Bytes bytes = std::as_bytes(std::span(data, size));
  constexpr uint64_t kVersion = 1;  // of the seeds
  auto handover = Handover::Unpack(bytes, kVersion);
  if (!handover) return 0;
  if (handover->other_build) {
    SDP_CHECK(handover->descriptors() == 0);
    for (const Handover::Connection& connection : handover->connections) SDP_CHECK(!connection.whole);
    return 0;
  }
  const auto packed = handover->Pack(kVersion);
  SDP_CHECK(std::ranges::equal(packed, bytes));
  for (const Handover::Connection& connection : handover->connections) {
    SDP_CHECK(!connection.whole || connection.arena < handover->arenas.size());
  }
  (void)handover->descriptors();
  return 0;
}
