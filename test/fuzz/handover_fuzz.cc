// What another program says of its sockets: refused, or it packs to the same bytes again.
#include <algorithm>
#include <span>

#include "core/base/check.h"
#include "preload/socket/handover.h"

using sdp::preload::Handover;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sdp::Bytes bytes = std::as_bytes(std::span(data, size));
  auto handover = Handover::Unpack(bytes);
  if (!handover) return 0;
  const auto packed = handover->Pack();
  SDP_CHECK(std::ranges::equal(packed, bytes));
  for (const Handover::Connection& connection : handover->connections) {
    SDP_CHECK(!connection.whole || connection.arena < handover->arenas.size());
  }
  (void)handover->descriptors();
  return 0;
}
