// The bytes of the streams in these tests: both ends know what has to be at each position.
#ifndef SDP_TEST_SUSPENSION_PATTERN_H_
#define SDP_TEST_SUSPENSION_PATTERN_H_

#include <cstdint>
#include <string>

namespace sdp::suspension_test {

enum class From : uint64_t { kPeer = 17, kProgram = 91 };

inline char ByteAt(From from, uint64_t position) {
  return static_cast<char>(
      (position * 131 + position / 253 * 29 + position / 65536 * 7 + static_cast<uint64_t>(from)) & 0xff);
}

// `size` bytes of the stream from `position` on.
inline std::string Stretch(From from, uint64_t position, size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = ByteAt(from, position + i);
  return bytes;
}

}  // namespace sdp::suspension_test

#endif  // SDP_TEST_SUSPENSION_PATTERN_H_
