// Small writes that wait for the next one: which may, and that they leave in order, once, ahead of it.
#include "preload/socket/corked.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "test/preload/scripted_session.h"

namespace sdp::preload {
namespace {

constexpr size_t kSendBuffer = 1000;

iovec Piece(std::string& text) { return {.iov_base = text.data(), .iov_len = text.size()}; }

void Append(Corked& corked, std::string text) {
  const iovec piece = Piece(text);
  corked.Append({&piece, 1});
}

size_t Send(Corked& corked, Connected& c, const std::string& text, size_t* moved,
            engine::Buffering buffering = engine::Buffering::kSmall) {
  const Bytes piece = std::as_bytes(std::span(text));
  return corked.Send(*c.session, {&piece, 1}, {.buffering = buffering}, moved);
}

TEST_CASE("corked: less than a message waits, if the send buffer and the caller's room take it") {
  Connected c(10);  // buffers of 128 bytes
  Corked corked;
  const engine::Engine& e = c.session->engine();
  CHECK(corked.Fits(e, 127, SIZE_MAX, kSendBuffer));
  CHECK_FALSE(corked.Fits(e, 128, SIZE_MAX, kSendBuffer));
  CHECK_FALSE(corked.Fits(e, 100, 99, kSendBuffer));
  CHECK_FALSE(corked.Fits(e, 100, SIZE_MAX, 99));
  Append(corked, std::string(100, 'x'));
  CHECK(corked.Fits(e, 27, SIZE_MAX, kSendBuffer));
  CHECK_FALSE(corked.Fits(e, 28, SIZE_MAX, kSendBuffer));
}

TEST_CASE("corked: the bytes are due only while there are some") {
  Corked corked;
  const Time due = Time{} + std::chrono::seconds(7);
  corked.SetDue(due);
  CHECK(corked.due() == kNever);
  Append(corked, "a");
  CHECK(corked.due() == due);
  corked.Clear();
  CHECK(corked.due() == kNever);
}

TEST_CASE("corked: only bytes of a stream are told as such") {
  Corked corked;
  corked.SetDue(Time{}, /*in_stream=*/true);
  CHECK_FALSE(corked.in_stream());
  Append(corked, "a");
  CHECK(corked.in_stream());
  corked.SetDue(Time{});
  CHECK_FALSE(corked.in_stream());
}

TEST_CASE("corked: memory that is used no more is given back") {
  Corked corked;
  CHECK_FALSE(corked.Trim());
  Append(corked, std::string(1000, 'x'));
  CHECK(corked.Trim());
  CHECK(corked.Trim());  // the bytes are there
  corked.Clear();
  Append(corked, "x");
  corked.Clear();
  CHECK(corked.Trim());  // it was in use a moment ago
  CHECK_FALSE(corked.Trim());
}

TEST_CASE("corked: what has waited leaves ahead of the next write, and counts as none of it") {
  Connected c(10);
  Corked corked;
  std::string first = "one ", second = "two ";
  const std::array<iovec, 2> both{Piece(first), Piece(second)};
  corked.Append(both);
  CHECK(corked.size() == 8);
  size_t moved = 0;
  CHECK(Send(corked, c, "three", &moved) == 5);
  CHECK(moved == 13);
  CHECK(corked.empty());
  CHECK(c.queue_pair->sent == "one two three");
  CHECK(Send(corked, c, "four", &moved) == 4);
  CHECK(moved == 4);
  CHECK(c.queue_pair->sent == "one two threefour");
}

TEST_CASE("corked: what credit does not take stays, and leaves before anything else") {
  Connected c(3);
  Corked corked;
  size_t moved = 0;
  constexpr auto kNone = engine::Buffering::kNone;
  const std::string much(10'000, 'x');
  REQUIRE(Send(corked, c, much, &moved, kNone) < much.size());  // all that credit allows
  const size_t before = c.queue_pair->sent.size();
  Append(corked, "late");
  CHECK(Send(corked, c, "later", &moved, kNone) == 0);
  CHECK(moved == 0);
  CHECK(corked.size() == 4);
  CHECK(c.queue_pair->sent.size() == before);
}

TEST_CASE("corked: Push sends what has waited by itself, and drops it where nothing can be sent any more") {
  Connected c(10);
  Corked corked;
  corked.Push(*c.session);
  CHECK(c.queue_pair->sent.empty());
  Append(corked, "alone");
  corked.Push(*c.session);
  CHECK(corked.empty());
  CHECK(c.queue_pair->sent == "alone");
  c.session->engine().CloseSend();
  Append(corked, "late");
  corked.Push(*c.session);
  CHECK(corked.empty());
  CHECK(c.queue_pair->sent == "alone");
}

}  // namespace
}  // namespace sdp::preload
