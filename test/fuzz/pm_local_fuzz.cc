// Any message on the local socket, in either direction: requests as the daemon reads them, replies as the
// library does.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "portmapper/local_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sdp::pm;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto request = ParseRegisterRequest(bytes)) {
    SDP_CHECK(size == kRegisterRequestSize && ParseRegisterRequest(Serialize(*request)).has_value());
  }
  if (ParseGreeting(bytes)) {
    SDP_CHECK(size == kRegisterRequestSize && ParseGreeting(Serialize(Greeting{})).has_value());
    SDP_CHECK(!ParseRegisterRequest(bytes));
  }
  if (const auto request = ParseRnicRequest(bytes)) {
    SDP_CHECK(size == kRnicRequestSize && ParseRnicRequest(Serialize(*request))->sdp == request->sdp);
  }
  if (const auto reply = ParseRegisterReply(bytes)) {
    SDP_CHECK(!ToString(reply->refusal).empty() && reply->text.size() <= kMaxReplyText);
    std::array<std::byte, kMaxReplySize> out;
    SDP_CHECK(Serialize(*reply, out) == size);
    SDP_CHECK(ParseRegisterReply(std::span(out).first(size))->text == reply->text);
  }
  return 0;
}
