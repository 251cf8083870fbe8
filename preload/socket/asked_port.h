// Which service a connecting peer means, where it goes by an answer of the port mapper that it has
// remembered. Another service may have taken the SDP port since. So the private data of the MPA Request names
// the conventional port, behind Hello. Other SDP peers see it as more private data.
#ifndef SDP_PRELOAD_SOCKET_ASKED_PORT_H_
#define SDP_PRELOAD_SOCKET_ASKED_PORT_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/base/byte_order.h"
#include "core/base/types.h"

namespace sdp::preload {

inline constexpr std::array<char, 8> kAskedPort = {'S', 'D', 'P', 'p', 'o', 'r', 't', '\x01'};

// Returns `hello` with the conventional port behind it.
inline std::vector<std::byte> WithAskedPort(Bytes hello, uint16_t port) {
  std::vector<std::byte> all(hello.size() + kAskedPort.size() + sizeof port);
  std::memcpy(all.data(), hello.data(), hello.size());
  std::memcpy(all.data() + hello.size(), kAskedPort.data(), kAskedPort.size());
  StoreBe(all.data() + hello.size() + kAskedPort.size(), port);
  return all;
}

// Returns the port at the end of `private_data`, or nothing. The private data may be anything.
inline std::optional<uint16_t> AskedPort(Bytes private_data) {
  constexpr size_t kSize = kAskedPort.size() + sizeof(uint16_t);
  if (private_data.size() < kSize) return std::nullopt;
  const std::byte* const at = private_data.last(kSize).data();
  if (std::memcmp(at, kAskedPort.data(), kAskedPort.size()) != 0) return std::nullopt;
  return LoadBe<uint16_t>(at + kAskedPort.size());
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ASKED_PORT_H_
