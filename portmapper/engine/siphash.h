// SipHash-2-4: a keyed hash that whoever sees some of its values cannot continue. Makes the cookies of
// announcements.
#ifndef SDP_PORTMAPPER_ENGINE_SIPHASH_H_
#define SDP_PORTMAPPER_ENGINE_SIPHASH_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/base/types.h"
#include "portmapper/engine/keyed_hash.h"

namespace sdp::pm {

[[nodiscard]] inline uint64_t SipHash(Bytes data, const HashKey& key) {
  uint64_t v0 = key[0] ^ 0x736f6d6570736575u;
  uint64_t v1 = key[1] ^ 0x646f72616e646f6du;
  uint64_t v2 = key[0] ^ 0x6c7967656e657261u;
  uint64_t v3 = key[1] ^ 0x7465646279746573u;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  };
  const auto word = [&](size_t start, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i)
      value |= uint64_t{std::to_integer<uint8_t>(data[start + i])} << (8 * i);
    return value;
  };
  size_t at = 0;
  for (; at + 8 <= data.size(); at += 8) {
    const uint64_t m = word(at, 8);
    v3 ^= m;
    rounds(2);
    v0 ^= m;
  }
  const uint64_t last = uint64_t{data.size()} << 56 | word(at, data.size() - at);
  v3 ^= last;
  rounds(2);
  v0 ^= last;
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_ENGINE_SIPHASH_H_
