// Received payload in lent memory, until the application has read it.
#include "core/engine/receive_queue.h"

#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <string>

namespace sdp::engine {
namespace {

std::string Read(ReceiveQueue& queue, size_t most, bool peek = false) {
  std::string text(most, '\0');
  const MutableBytes room = std::as_writable_bytes(std::span(text));
  text.resize(queue.Read({&room, 1}, most, peek));
  CHECK(queue.IsConsistent());
  return text;
}

Bytes Of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST_CASE("receive queue: memory is given back when its message is read") {
  ReceiveQueue queue;
  const std::string first = "headabc", rest = "de";
  const std::array<Bytes, 2> pieces = {Of(first), Of(rest)};
  queue.Push(pieces, 4, 0, 7, 100);
  CHECK(queue.bytes() == 5);
  CHECK(Read(queue, 4) == "abcd");
  CHECK(queue.PollRelease() == std::nullopt);
  CHECK(Read(queue, 4) == "e");
  CHECK(queue.PollRelease() == 7);
  CHECK(queue.empty());
}

TEST_CASE("receive queue: a read within a piece takes that alone, and gives nothing back") {
  ReceiveQueue queue;
  std::string text(2, '\0');
  const MutableBytes room = std::as_writable_bytes(std::span(text));
  CHECK(queue.oldest_piece() == 0);
  const std::string first = "abc", rest = "def";
  const std::array<Bytes, 2> pieces = {Of(first), Of(rest)};
  queue.Push(pieces, 0, 0, 7, 100);
  CHECK(queue.oldest_piece() == 3);
  queue.ReadWithin(room);
  CHECK(text == "ab");
  CHECK(queue.IsConsistent());
  CHECK(queue.bytes() == 4);
  CHECK(queue.oldest_piece() == 1);
  CHECK(Read(queue, 2) == "cd");
  CHECK(queue.oldest_piece() == 2);
  queue.ReadWithin(room.first(1));
  CHECK(text == "eb");
  CHECK(queue.PollRelease() == std::nullopt);
  CHECK(Read(queue, 2) == "f");
  CHECK(queue.PollRelease() == 7);
}

TEST_CASE("receive queue: a message whose memory its lender needs back is kept") {
  ReceiveQueue queue;
  std::string before = "before", first = "abc", rest = "def", behind = "behind";
  const Bytes piece_before = Of(before), piece_behind = Of(behind);
  const std::array<Bytes, 2> pieces = {Of(first), Of(rest)};
  const bool has_before = GENERATE(false, true);
  const size_t read = GENERATE(0U, 2U, 3U, 5U);
  CAPTURE(has_before, read);
  if (has_before) queue.Push({&piece_before, 1}, 0, 0, 1, 10);
  queue.Push(pieces, 0, 0, 7, 100);
  queue.Push({&piece_behind, 1}, 0, 0, 2, 1000);
  if (has_before) {
    CHECK(Read(queue, 6) == "before");
    CHECK(queue.PollRelease() == 1);
  }
  CHECK(Read(queue, read) == std::string("abcdef").substr(0, read));
  queue.Keep(7);
  first = rest = "???";
  CHECK(queue.held_cost() == 1100);
  CHECK(queue.bytes() == 12 - read);
  CHECK(Read(queue, 20, /*peek=*/true) == std::string("abcdefbehind").substr(read));
  CHECK(Read(queue, 1) == std::string("abcdef").substr(read, 1));
  CHECK(Read(queue, 20) == std::string("abcdefbehind").substr(read + 1));
  CHECK(queue.held_cost() == 0);
  CHECK(queue.PollRelease() == 2);  // and nothing of the kept one
  CHECK(queue.PollRelease() == std::nullopt);
  CHECK(queue.empty());
}

TEST_CASE("receive queue: what was read before is released, and nothing of it is kept") {
  ReceiveQueue queue;
  const std::string text = "abc";
  const Bytes piece = Of(text);
  queue.Push({&piece, 1}, 0, 0, 7, 100);
  CHECK(Read(queue, 3) == "abc");
  queue.Keep(7);
  CHECK(queue.PollRelease() == 7);
  CHECK(queue.PollRelease() == std::nullopt);
}

}  // namespace
}  // namespace sdp::engine
