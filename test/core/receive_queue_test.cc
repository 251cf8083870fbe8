// Received payload that lies in the memory it is to be read into, or in the way of what is.
#include "core/engine/receive_queue.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <vector>

namespace sdp::engine {
namespace {

std::vector<std::byte> Counting(size_t size, size_t seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 5 + seed);
  return bytes;
}

void Push(ReceiveQueue& queue, Bytes bytes, uint64_t token) {
  queue.Push(std::span(&bytes, 1), 0, 0, token, 1);
}

}  // namespace

TEST_CASE(
    "receive queue: pieces in the reader's memory, behind where they belong, are moved there in order") {
  const std::vector<std::byte> first = Counting(10, 1);
  const std::vector<std::byte> second = Counting(40, 2);
  const std::vector<std::byte> third = Counting(30, 3);
  std::vector<std::byte> memory(100);
  // The second is where it belongs, the third eight bytes behind.
  std::copy(second.begin(), second.end(), memory.begin() + 10);
  std::copy(third.begin(), third.end(), memory.begin() + 58);
  ReceiveQueue queue;
  Push(queue, first, 1);
  Push(queue, Bytes(memory).subspan(10, 40), 2);
  Push(queue, Bytes(memory).subspan(58, 30), 3);
  const MutableBytes out(memory);
  CHECK(queue.Read(std::span(&out, 1), 1000, false) == 80);
  CHECK(std::equal(first.begin(), first.end(), memory.begin()));
  CHECK(std::equal(second.begin(), second.end(), memory.begin() + 10));
  CHECK(std::equal(third.begin(), third.end(), memory.begin() + 50));
  for (uint64_t token = 1; token <= 3; ++token) CHECK(queue.PollRelease() == token);
  CHECK(queue.IsConsistent());
}

TEST_CASE("receive queue: what came earlier is not written over what lies in the reader's memory") {
  // As a Write that was placed aside, or a late urgent byte, comes ahead of what has landed.
  const std::vector<std::byte> aside = Counting(33, 5);
  const std::vector<std::byte> landed = Counting(50, 6);
  std::vector<std::byte> memory(100);
  std::copy(landed.begin(), landed.end(), memory.begin());
  ReceiveQueue queue;
  Push(queue, aside, 1);
  Push(queue, Bytes(memory).first(20), 2);
  Push(queue, Bytes(memory).subspan(20, 30), 3);
  queue.MakeWay(memory);
  const MutableBytes out(memory);
  CHECK(queue.Read(std::span(&out, 1), 1000, false) == 83);
  CHECK(std::equal(aside.begin(), aside.end(), memory.begin()));
  CHECK(std::equal(landed.begin(), landed.end(), memory.begin() + 33));
  CHECK(queue.IsConsistent());
}

TEST_CASE("receive queue: what is not read leaves the reader's memory") {
  const std::vector<std::byte> data = Counting(60, 4);
  std::vector<std::byte> memory(60);
  std::copy(data.begin(), data.begin() + 50, memory.begin());
  ReceiveQueue queue;
  Push(queue, Bytes(memory).first(20), 1);
  const std::array<Bytes, 2> pieces{Bytes(memory).subspan(20, 30), Bytes(data).subspan(50)};
  queue.Push(pieces, 0, 0, 2, 1);
  const MutableBytes out = MutableBytes(memory).first(5);
  CHECK(queue.Read(std::span(&out, 1), 1000, false) == 5);
  queue.Leave(memory);
  queue.Leave(memory);  // nothing is there any more
  queue.Leave({});
  std::fill(memory.begin(), memory.end(), std::byte{0xee});
  std::vector<std::byte> rest(100);
  const MutableBytes room(rest);
  CHECK(queue.Read(std::span(&room, 1), 1000, true) == 55);
  CHECK(std::equal(data.begin() + 5, data.end(), rest.begin()));
  CHECK(queue.Read(std::span(&room, 1), 1000, false) == 55);
  CHECK(queue.PollRelease() == 1);
  CHECK(queue.PollRelease() == 2);
  CHECK(queue.empty());
  CHECK(queue.IsConsistent());
}

}  // namespace sdp::engine
