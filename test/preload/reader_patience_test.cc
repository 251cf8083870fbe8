// How long a writer that lends its memory waits for a reader, and when it copies instead.
#include "preload/socket/reader_patience.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace sdp::preload {
namespace {

TEST_CASE("patience: loans without a reader are followed by copies, twice as many each time, 64 at most") {
  ReaderPatience patience;
  CHECK_FALSE(patience.TakesCopy());
  for (int wanted = 1; wanted <= 256; wanted *= 2) {
    patience.NoteLoan(/*missed=*/true);
    int copies = 0;
    while (patience.TakesCopy()) ++copies;
    CHECK(copies == std::min(wanted, 64));
  }
  patience.NoteLoan(/*missed=*/false);
  CHECK_FALSE(patience.TakesCopy());
}

TEST_CASE("patience: how long reads are expected to take follows those that were, within bounds") {
  constexpr size_t kMebibyte = 1 << 20;
  ReaderPatience patience;
  const Duration before = patience.ReadsExpected(kMebibyte);
  CHECK(before == 2 * std::chrono::milliseconds(20));
  CHECK(patience.ReadsExpected(kMebibyte / 2) == before / 2);
  for (int i = 0; i < 50; ++i) patience.NoteReads(std::chrono::seconds(9), kMebibyte);
  CHECK(patience.ReadsExpected(kMebibyte) > std::chrono::milliseconds(99));
  CHECK(patience.ReadsExpected(kMebibyte) <= std::chrono::milliseconds(100));
  for (int i = 0; i < 50; ++i) patience.NoteReads(Duration(1), kMebibyte);
  CHECK(patience.ReadsExpected(kMebibyte) >= std::chrono::milliseconds(2));
  CHECK(patience.ReadsExpected(kMebibyte) < std::chrono::milliseconds(3));
}

}  // namespace
}  // namespace sdp::preload
