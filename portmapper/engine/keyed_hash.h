// Hashes of what strangers send, under a key they do not know: they cannot choose addresses that meet in one
// place of a table. Not for secrets.
#ifndef SDP_PORTMAPPER_ENGINE_KEYED_HASH_H_
#define SDP_PORTMAPPER_ENGINE_KEYED_HASH_H_

#include <array>
#include <cstdint>
#include <cstring>

#include "portmapper/endpoint.h"

namespace sdp::pm {

// The owner of a table brings the randomness.
using HashKey = std::array<uint64_t, 2>;

// A product folded onto itself: each bit of the result depends on all of both factors.
[[nodiscard]] inline uint64_t Fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

[[nodiscard]] inline uint64_t KeyedHash(const Endpoint& endpoint, const HashKey& key) {
  uint64_t halves[2];
  static_assert(sizeof halves == sizeof endpoint.address);
  std::memcpy(halves, endpoint.address.data(), sizeof halves);
  const uint64_t rest = uint64_t{endpoint.port} << 8 | static_cast<uint8_t>(endpoint.version);
  return Fold(Fold(halves[0] ^ key[0], halves[1] ^ key[1]) ^ rest, key[0] ^ 0x9E3779B97F4A7C15u);
}

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_KEYED_HASH_H_
