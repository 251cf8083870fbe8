// What the clients here send: bytes that show it if one is lost, doubled or out of place.
#ifndef SDP_TEST_PROGRAMS_LOOPS_PATTERN_H_
#define SDP_TEST_PROGRAMS_LOOPS_PATTERN_H_

#include <cstddef>
#include <random>
#include <string>

// The `size` bytes that connection `number` sends, and wants back.
inline std::string Pattern(unsigned number, size_t size) {
  std::mt19937 random(number);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

#endif  // SDP_TEST_PROGRAMS_LOOPS_PATTERN_H_
