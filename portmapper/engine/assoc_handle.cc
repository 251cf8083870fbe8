#include "portmapper/engine/assoc_handle.h"

namespace sdp::pm {
namespace {

// SplitMix64's finisher.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

AssocHandle AssocHandleGenerator::Next() {
  // A Feistel network over the counter's two halves is a permutation whatever its round function is.
  const uint64_t plain = counter_++;
  uint32_t left = static_cast<uint32_t>(plain >> 32);
  uint32_t right = static_cast<uint32_t>(plain);
  for (uint64_t round = 0; round < 8; ++round) {
    const uint64_t f = Mix(Mix(key_[round & 1] + right) ^ key_[~round & 1] ^ round << 40);
    const uint32_t next = left ^ static_cast<uint32_t>(f >> 32);
    left = right;
    right = next;
  }
  return AssocHandle(uint64_t{left} << 32 | right);
}

}  // namespace sdp::pm
