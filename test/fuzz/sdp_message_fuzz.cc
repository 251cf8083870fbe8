// Any bytes as an SDP message: the parser stays inside them, and what it accepts is written back as it was.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/wire/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sdp::Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = sdp::wire::Parse(bytes.first(std::min(size, sdp::wire::kMaxHeaderSize)), size);
  if (!message) {
    if (*ToString(message.error()) == '?') std::abort();
    return 0;
  }
  if (message->header_size() + message->payload_size() != size) std::abort();
  if (ToString(*message).empty()) std::abort();
  std::array<std::byte, sdp::wire::kMaxHeaderSize> out{};
  const size_t written = SerializeTo(*message, out);
  const auto again = sdp::wire::Parse(sdp::Bytes(out).first(written), size);
  if (!again || !(*again == *message)) std::abort();
  return 0;
}
