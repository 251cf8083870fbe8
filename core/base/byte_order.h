#ifndef SDP_CORE_BASE_BYTE_ORDER_H_
#define SDP_CORE_BASE_BYTE_ORDER_H_

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/types.h"

namespace sdp {

// Read and write network byte order at any alignment. The caller has checked the bounds; BoundedReader and
// BoundedWriter check them by type.
template <std::unsigned_integral T>
[[nodiscard]] inline T LoadBe(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  if constexpr (std::endian::native == std::endian::little && sizeof(T) > 1) {
    if constexpr (sizeof(T) == 2) v = __builtin_bswap16(v);
    if constexpr (sizeof(T) == 4) v = __builtin_bswap32(v);
    if constexpr (sizeof(T) == 8) v = __builtin_bswap64(v);
  }
  return v;
}

template <std::unsigned_integral T>
inline void StoreBe(std::byte* p, T v) {
  if constexpr (std::endian::native == std::endian::little && sizeof(T) > 1) {
    if constexpr (sizeof(T) == 2) v = __builtin_bswap16(v);
    if constexpr (sizeof(T) == 4) v = __builtin_bswap32(v);
    if constexpr (sizeof(T) == 8) v = __builtin_bswap64(v);
  }
  std::memcpy(p, &v, sizeof v);
}

// Reads a fixed-size header. Forming the span of exactly N bytes is the one length check at run time; the
// compiler checks every offset.
template <size_t N>
class BoundedReader {
 public:
  explicit BoundedReader(std::span<const std::byte, N> bytes) : bytes_(bytes) {}

  template <typename T, size_t Offset>
  [[nodiscard]] T Load() const {
    static_assert(Offset + sizeof(T) <= N);
    return LoadBe<T>(bytes_.data() + Offset);
  }

 private:
  std::span<const std::byte, N> bytes_;
};

template <size_t N>
class BoundedWriter {
 public:
  explicit BoundedWriter(std::span<std::byte, N> bytes) : bytes_(bytes) {}

  template <typename T, size_t Offset>
  void Store(T v) {
    static_assert(Offset + sizeof(T) <= N);
    StoreBe<T>(bytes_.data() + Offset, v);
  }

 private:
  std::span<std::byte, N> bytes_;
};

}  // namespace sdp

#endif  // SDP_CORE_BASE_BYTE_ORDER_H_
