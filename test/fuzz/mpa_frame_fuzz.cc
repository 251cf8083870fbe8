// MPA start-up: arbitrary bytes as Request to a responder or as Reply to an initiator, in one piece and byte
// by byte.
#include <algorithm>
#include <span>

#include "core/base/check.h"
#include "verbs/softiwarp/proto/mpa_negotiation.h"

using namespace sdp;
using namespace sdp::iwarp;

namespace {

void Play(MpaNegotiation* negotiation, Bytes bytes, bool by_byte) {
  if (by_byte) {
    for (const std::byte& b : bytes) negotiation->HandleBytes(Bytes(&b, 1));
  } else {
    negotiation->HandleBytes(bytes);
  }
  if (negotiation->state() == MpaState::kRequested)
    negotiation->Accept(bytes.first(std::min<size_t>(bytes.size(), 100)), 16, 16);
  negotiation->HandleEof();
  SDP_CHECK(negotiation->state() != MpaState::kWaiting);
  SDP_CHECK(negotiation->peer_private_data().size() <= kMaxPrivateData);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes = std::as_bytes(std::span(data, size));
  for (int i = 0; i < 4; ++i) {
    const bool by_byte = (i & 1) != 0;
    if ((i & 2) != 0) {
      MpaNegotiation initiator({}, {}, 4, 4, Time{});
      initiator.HandleSent(initiator.output().size());
      Play(&initiator, bytes, by_byte);
    } else {
      MpaNegotiation responder({}, Time{});
      Play(&responder, bytes, by_byte);
    }
  }
  return 0;
}
