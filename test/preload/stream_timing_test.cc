// Whether a stream of large sends is read or copied.
#include "preload/socket/stream_timing.h"

#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;

// `mebibytes` in sends of `size`, of which one takes so long a MiB in either way. How many bytes were read.
uint64_t Stream(StreamTiming* timing, uint64_t size, uint64_t mebibytes, Duration read, Duration copied,
                Time* now) {
  uint64_t bytes_read = 0;
  for (uint64_t sent = 0; sent < mebibytes * kMebibyte; sent += size) {
    timing->Begin(size, *now);
    if (timing->reads()) bytes_read += size;
    *now += (timing->reads() ? read : copied) * static_cast<int64_t>(size) / static_cast<int64_t>(kMebibyte);
  }
  return bytes_read;
}
constexpr auto us(int64_t count) { return std::chrono::microseconds(count); }

}  // namespace

TEST_CASE(
    "stream timing: it begins by copying, but for long sends, and keeps to what is faster, whatever the "
    "size") {
  for (const uint64_t size : {kMebibyte / 2 + 1, kMebibyte, 64 * kMebibyte}) {
    StreamTiming slow;
    Time now(us(1));
    CHECK(Stream(&slow, size, 60, us(300), us(200), &now) == (size > 4 * kMebibyte ? size : 0));
    Stream(&slow, size, 128 * size / kMebibyte + 400, us(300), us(200), &now);
    CHECK_FALSE(slow.reads());
    CHECK(Stream(&slow, size, 256, us(300), us(200), &now) == 0);
    StreamTiming fast;
    Stream(&fast, size, 128 * size / kMebibyte + 600, us(100), us(200), &now);
    CHECK(fast.reads());
    CHECK(Stream(&fast, size, 256, us(100), us(200), &now) >= 256 * kMebibyte);
  }
}

}  // namespace sdp::preload
