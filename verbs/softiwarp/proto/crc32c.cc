#include "verbs/softiwarp/proto/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sdp::iwarp {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41, bits reversed
constexpr size_t kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

constexpr Tables MakeTables() {
  Tables t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t v = i;
    for (int bit = 0; bit < 8; ++bit) v = (v >> 1) ^ ((v & 1) != 0 ? kPolynomial : 0);
    t[0][i] = v;
  }
  for (size_t slice = 1; slice < kSlices; ++slice) {
    for (uint32_t i = 0; i < 256; ++i) t[slice][i] = (t[slice - 1][i] >> 8) ^ t[0][t[slice - 1][i] & 0xff];
  }
  return t;
}

constexpr Tables kTables = MakeTables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(uint32_t running, Bytes bytes) {
  const std::byte* p = bytes.data();
  size_t n = bytes.size();
  uint64_t crc = running;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  auto crc32 = static_cast<uint32_t>(crc);
  for (; n > 0; --n, ++p) crc32 = _mm_crc32_u8(crc32, static_cast<uint8_t>(*p));
  return crc32;
}
#endif

}  // namespace

uint32_t ExtendCrc32cByTable(uint32_t running, Bytes bytes) {
  const std::byte* p = bytes.data();
  size_t n = bytes.size();
  if constexpr (std::endian::native == std::endian::little) {
    for (; n >= 8; n -= 8, p += 8) {
      uint64_t word;
      std::memcpy(&word, p, sizeof word);
      word ^= running;
      running = kTables[7][word & 0xff] ^ kTables[6][word >> 8 & 0xff] ^ kTables[5][word >> 16 & 0xff] ^
                kTables[4][word >> 24 & 0xff] ^ kTables[3][word >> 32 & 0xff] ^
                kTables[2][word >> 40 & 0xff] ^ kTables[1][word >> 48 & 0xff] ^ kTables[0][word >> 56];
    }
  }
  for (; n > 0; --n, ++p) running = (running >> 8) ^ kTables[0][(running ^ static_cast<uint8_t>(*p)) & 0xff];
  return running;
}

uint32_t ExtendCrc32c(uint32_t running, Bytes bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ExtendByInstruction(running, bytes);
#endif
  return ExtendCrc32cByTable(running, bytes);
}

void StoreCrc32c(uint32_t running, std::byte* out) {
  const uint32_t crc = ~running;
  for (size_t i = 0; i < kCrcSize; ++i) out[i] = static_cast<std::byte>(crc >> (8 * i));
}

bool MatchesCrc32c(uint32_t running, const std::byte* field) {
  std::byte expected[kCrcSize];
  StoreCrc32c(running, expected);
  return std::memcmp(expected, field, kCrcSize) == 0;
}

}  // namespace sdp::iwarp
