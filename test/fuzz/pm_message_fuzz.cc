// Any datagram: it parses or it is refused with a type, and what parses is a fixed point of serialising.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "portmapper/wire/pm_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sdp::pm;
  const auto message = Parse(std::as_bytes(std::span(data, size)));
  if (!message) {
    SDP_CHECK(ToString(message.error()) != "unknown");
    return 0;
  }
  SDP_CHECK(size == kPmMessageSize);
  const auto again = Parse(Serialize(*message));
  SDP_CHECK(again && *again == *message);
  SDP_CHECK(!ToString(*message).empty());
  for (const Endpoint& endpoint : {message->cp, message->ap}) {
    SDP_CHECK(ParseEndpoint(endpoint.ToString()) == endpoint);
    SDP_CHECK(NormalizeMapped(ToMapped(endpoint)) == NormalizeMapped(endpoint));
  }
  return 0;
}
