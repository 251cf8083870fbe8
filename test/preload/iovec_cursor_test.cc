#include "preload/socket/iovec_cursor.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace sdp::preload {
namespace {

// The pieces of an iovec, each with memory of its own.
struct Pieces {
  explicit Pieces(const std::vector<std::string>& texts) : memory(texts) {
    for (std::string& text : memory) iov.push_back({.iov_base = text.data(), .iov_len = text.size()});
  }
  std::vector<std::string> memory;
  std::vector<iovec> iov;
};

std::string Text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string Text(std::span<const Bytes> spans) {
  std::string text;
  for (const Bytes span : spans) text += Text(span) + "|";
  return text;
}

TEST_CASE("iovec cursor: names the rest from where it stands, without empty pieces") {
  Pieces pieces({"", "abc", "", "defg", ""});
  SendCursor cursor(pieces.iov.data(), pieces.iov.size());
  CHECK(cursor.left() == 7);
  CHECK(Text(cursor.Front()) == "abc");
  CHECK(Text(cursor.Rest()) == "abc|defg|");
  CHECK(Text(cursor.Rest(4)) == "abc|d|");
  cursor.Advance(3);
  CHECK(Text(cursor.Front()) == "defg");
  cursor.Advance(2);
  CHECK(Text(cursor.Front()) == "fg");
  CHECK(Text(cursor.Rest()) == "fg|");
  cursor.Advance(2);
  CHECK(cursor.left() == 0);
  CHECK(cursor.Front().empty());
  CHECK(cursor.Rest().empty());
}

TEST_CASE("iovec cursor: says whether there is more than it could name") {
  const std::vector<std::string> texts(70, "x");
  Pieces pieces(texts);
  SendCursor cursor(pieces.iov.data(), pieces.iov.size());
  const auto named = cursor.Rest();
  CHECK(named.size() == 64);
  CHECK(cursor.RestIsMore(named));
  cursor.Advance(6);
  CHECK_FALSE(cursor.RestIsMore(cursor.Rest()));
  std::array<Bytes, 70> room;
  CHECK(cursor.Name(SIZE_MAX, room).size() == 64);
}

TEST_CASE("iovec cursor: what it may write to is the program's memory alone") {
  Pieces pieces({"abc"});
  pieces.iov.push_back({.iov_base = nullptr, .iov_len = 4096});
  const ReceiveCursor cursor(pieces.iov.data(), pieces.iov.size());
  CHECK(cursor.MayWrite(3));
  CHECK_FALSE(cursor.MayWrite(4));
}

}  // namespace
}  // namespace sdp::preload
