// Bcopy in both directions, buffering, readiness.
#include <catch2/catch.hpp>

#include "core/engine/rep.h"
#include "test/core/scripted_peer.h"

namespace sdp::engine {
namespace {

std::string Letters(size_t n) {
  std::string text(n, ' ');
  for (size_t i = 0; i < n; ++i) text[i] = static_cast<char>('a' + i % 26);
  return text;
}

constexpr SendFlags kSmall{};
constexpr SendFlags kFull{.buffering = Buffering::kFull};

}  // namespace

TEST_CASE("Bcopy: what is sent arrives, and one small exchange is two messages") {
  EnginePair pair({}, {});
  CHECK(pair.a.Send("GET /") == 5);
  CHECK(pair.a.Text() == "Data bufs=24 mseq=0 ack=0 payload=5");
  CHECK_FALSE(pair.a.flights[0].solicited);
  pair.z.Deliver(pair.a, nullptr);
  CHECK(pair.z.engine.readable_bytes() == 5);
  CHECK(pair.z.Read(100) == "GET /");
  CHECK(pair.z.flights.empty());  // credit travels on the answer
  CHECK(pair.z.Send("200") == 3);
  CHECK(pair.Settle() == 1);
  CHECK(pair.a.Read(100) == "200");
  CHECK(pair.Settle() == 0);
}

TEST_CASE("Bcopy: a read within a message changes nothing else, and is refused beside urgent data") {
  EnginePair pair({}, {});
  const auto read_within = [&](size_t size) {
    std::string text(size, '\0');
    if (size >= pair.z.engine.readable_piece()) return std::string();
    pair.z.engine.ReceiveWithin(std::as_writable_bytes(std::span(text)));
    return text;
  };
  CHECK(pair.a.Send("abcdef") == 6);
  pair.Settle();
  const uint64_t edge = pair.z.engine.read_edge();
  CHECK(read_within(2) == "ab");
  CHECK(pair.z.engine.readable_bytes() == 4);
  CHECK(pair.z.engine.read_edge() == edge);
  CHECK(pair.Settle() == 0);
  CHECK(read_within(4).empty());
  CHECK(pair.z.Read(1) == "c");
  CHECK(pair.a.Send("!", {.out_of_band = true}) == 1);
  pair.Settle();
  CHECK(read_within(1).empty());
  CHECK(pair.z.Read(9) == "def");
}

TEST_CASE("Bcopy: a write is cut to the peer's Private Buffers") {
  ScriptedPeer peer;  // 1000 bytes of payload each
  const std::string text = Letters(2500);
  CHECK(peer.end.Send(text) == 2500);
  CHECK(peer.Hear() == "Data payload=1000");
  CHECK(peer.payload() == text.substr(0, 1000));
  CHECK(peer.Hear() == "Data payload=1000");
  CHECK(peer.Hear() == "Data payload=500");
  CHECK(peer.payload() == text.substr(2000));
}

TEST_CASE("Bcopy: many pieces make shorter messages, none is copied") {
  ScriptedPeer peer;
  const std::string text = Letters(60);
  std::vector<std::byte> memory(60);
  std::memcpy(memory.data(), text.data(), 60);
  std::vector<Bytes> pieces;
  for (size_t i = 0; i < 20; ++i) {
    pieces.push_back(Bytes(memory).subspan(i * 3, 3));
    pieces.push_back({});
  }
  CHECK(peer.engine().Send(pieces, kSmall) == 60);
  std::string all;
  std::vector<size_t> sizes;
  Action action;
  while (peer.engine().PollAction(&action)) {
    const auto& post = std::get<PostSend>(action);
    CHECK(post.piece_count <= kMaxPayloadPieces);
    size_t size = 0;
    for (const Bytes& piece : post.payload()) {
      CHECK(piece.data() >= memory.data());
      CHECK(piece.data() < memory.data() + memory.size());
      size += piece.size();
      all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    sizes.push_back(size);
  }
  CHECK(all == text);
  CHECK(sizes == std::vector<size_t>{24, 24, 12});
  CHECK(peer.engine().stats().buffered_copies == 0);
}

TEST_CASE("Bcopy: without credit a large write waits, a small one is kept") {
  ScriptedPeer peer({.bufs = 4});
  peer.repost = false;
  CHECK(peer.end.Send(Letters(3000)) == 2000);  // two messages; the last two credits carry no payload
  CHECK_FALSE(peer.engine().writable());
  CHECK(peer.engine().stats().send_stalls == 1);
  CHECK(peer.end.Send(Letters(501)) == 0);  // more than half a Private Buffer
  CHECK_FALSE(peer.engine().writable());
  CHECK(peer.end.Send(Letters(500)) == 500);
  CHECK(peer.engine().buffered_bytes() == 500);
  CHECK(peer.engine().has_unfinished_sends());
  CHECK(peer.end.Send("and this") == 8);
  CHECK(peer.HearAll() == "Data payload=1000, Data payload=1000");
  // Credit comes: older bytes first, together.
  peer.repost = true;
  peer.bufs = 24;
  const uint64_t edge = peer.engine().write_edge();
  peer.Say(wire::Data{});
  CHECK(peer.HearAll() == "Data payload=508");
  CHECK(peer.payload() == Letters(500) + "and this");
  CHECK(peer.engine().buffered_bytes() == 0);
  CHECK_FALSE(peer.engine().has_unfinished_sends());
  CHECK(peer.engine().writable());
  CHECK(peer.engine().write_edge() == edge);  // no Send came short since the buffered ones
}

TEST_CASE("Bcopy: the write edge follows a short Send") {
  ScriptedPeer peer({.bufs = 3});
  peer.repost = false;
  CHECK(peer.end.Send(Letters(2000)) == 1000);
  CHECK_FALSE(peer.engine().writable());
  const uint64_t edge = peer.engine().write_edge();
  peer.HearAll();
  peer.bufs = 3;
  peer.Say(wire::Data{});
  CHECK(peer.engine().writable());
  CHECK(peer.engine().write_edge() == edge + 1);
  CHECK(peer.end.Send("x") == 1);
}

// Else each send would wake the threads that wait for the peer's data.
TEST_CASE("Bcopy: a Send that is taken whole is no write edge, whatever comes behind it") {
  ScriptedPeer peer({.bufs = 20});
  const uint64_t edge = peer.engine().write_edge();
  for (int i = 0; i < 5; ++i) {
    CHECK(peer.end.Send("question") == 8);
    CHECK(peer.HearAll() == "Data payload=8");
    peer.Say(wire::Data{});
  }
  CHECK(peer.engine().write_edge() == edge);
}

TEST_CASE("Bcopy: kFull keeps up to the send limit") {
  ScriptedPeer peer({.options = {.send_limit = 5000}, .bufs = 3});
  peer.repost = false;
  CHECK(peer.end.Send(Letters(10000), kFull) == 6000);
  CHECK(peer.engine().buffered_bytes() == 5000);
  CHECK(peer.engine().stats().buffered_copies == 5000);
  CHECK_FALSE(peer.engine().writable());
  CHECK(peer.end.Send("x", kFull) == 0);
  CHECK(peer.end.Send("x", kSmall) == 0);
  CHECK_FALSE(peer.engine().writable());
  // Writable again when a third of the room is free.
  peer.HearAll();
  peer.bufs = 3;
  peer.Say(wire::Data{});
  CHECK(peer.HearAll() == "Data payload=1000");
  CHECK_FALSE(peer.engine().writable());
  peer.bufs = 3;
  peer.Say(wire::Data{});
  CHECK(peer.HearAll() == "Data payload=1000");
  CHECK(peer.engine().writable());
  CHECK(peer.end.Send("x", kSmall) == 1);
}

TEST_CASE("Bcopy: a sender may want nothing to be copied, however little it is") {
  ScriptedPeer peer({.bufs = 4});
  peer.repost = false;
  const std::string data = Letters(2100);
  const Bytes bytes = std::as_bytes(std::span(data));
  CHECK(peer.end.Send({&bytes, 1}, {.buffering = Buffering::kNone}) == 2000);
  CHECK(peer.HearAll() == "Data payload=1000, Data payload=1000");
  const Bytes rest = bytes.subspan(2000);
  CHECK(peer.end.Send({&rest, 1}, {.buffering = Buffering::kNone}) == 0);
  CHECK(peer.engine().buffered_bytes() == 0);
  CHECK_FALSE(peer.engine().has_unfinished_sends());
  CHECK_FALSE(peer.engine().writable());
  const uint64_t edge = peer.engine().write_edge();
  peer.bufs = 24;
  peer.Say(wire::Data{});
  CHECK(peer.engine().writable());
  CHECK(peer.engine().write_edge() > edge);
}

TEST_CASE("Bcopy: the buffer's bytes leave in order through its wrap") {
  ScriptedPeer peer({.options = {.send_limit = 3000}, .bufs = 3, .buffer_size = 716});
  peer.repost = false;
  std::string sent, heard;
  const std::string text = Letters(26 * 400);
  size_t at = 0;
  while (heard.size() < text.size()) {
    at += peer.end.Send(text.substr(at, 350), kSmall);
    while (!peer.end.flights.empty()) {
      peer.Hear();
      heard += peer.payload();
    }
    peer.bufs = 3;
    peer.Say(wire::Data{});
  }
  CHECK(heard == text);
}

TEST_CASE("Bcopy: two peers that both send first do not deadlock") {
  // 9.5.6: a write no longer than SO_SNDBUF here and SO_RCVBUF there ends although nobody reads.
  const Options options{
      .receive_buffers = 8, .receive_buffer_size = 1016, .receive_limit = 8 * 1016, .send_limit = 20000};
  EnginePair pair(options, options);
  const std::string text = Letters(20000 + 6 * 1000);
  size_t a_sent = 0, z_sent = 0;
  while (a_sent < text.size() || z_sent < text.size()) {
    const size_t before = a_sent + z_sent;
    if (a_sent < text.size()) a_sent += pair.a.Send(text.substr(a_sent), kFull);
    if (z_sent < text.size()) z_sent += pair.z.Send(text.substr(z_sent), kFull);
    pair.Settle();
    REQUIRE(a_sent + z_sent > before);
  }
  std::string a_read, z_read;
  while (a_read.size() < text.size() || z_read.size() < text.size()) {
    a_read += pair.a.Read(5000);
    z_read += pair.z.Read(700);
    pair.Settle();
  }
  CHECK(a_read == text);
  CHECK(z_read == text);
}

TEST_CASE("Bcopy: the same with small messages, which do not use up the window") {
  const Options options{.receive_buffers = 8, .receive_buffer_size = 32784, .receive_limit = 8 * 32784};
  EnginePair pair(options, options);
  for (int i = 0; i < 500; ++i) {
    REQUIRE(pair.a.Send("tiny") == 4);
    pair.Settle();
  }
  CHECK(pair.z.engine.readable_bytes() == 2000);
  CHECK(pair.a.engine.buffered_bytes() == 0);
}

TEST_CASE("Bcopy: large unread messages close the window to the reserve") {
  const Options options{.receive_buffers = 8, .receive_buffer_size = 1016, .receive_limit = 8 * 1016};
  EnginePair pair(options, options);
  size_t sent = 0;
  for (int i = 0; i < 20; ++i) {
    sent += pair.a.Send(Letters(1000));
    pair.Settle();
  }
  CHECK(sent < 8000);
  CHECK(pair.z.engine.stats().posted_receives == 2);
  CHECK(pair.z.engine.stats().receive_queue == sent);
  CHECK(pair.z.Read(100000).size() == sent);
  pair.Settle();
  CHECK(pair.z.engine.stats().posted_receives == 8);
  CHECK(pair.a.engine.writable());
}

TEST_CASE("Bcopy: reading in any pieces, peeking, and memory that is already in place") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "hello ");
  peer.Say(wire::Data{}, "world");
  CHECK(peer.end.Read(3, {.peek = true}) == "hel");
  CHECK(peer.end.Read(100, {.peek = true}) == "hello world");
  CHECK(peer.engine().readable_bytes() == 11);
  std::byte x[4], y[4];
  const MutableBytes out[3] = {x, {}, y};
  CHECK(peer.engine().Receive(out, {}) == 8);
  CHECK(std::string(reinterpret_cast<char*>(x), 4) + std::string(reinterpret_cast<char*>(y), 4) ==
        "hello wo");
  peer.end.Drain();
  CHECK(peer.end.Read(100) == "rld");
  CHECK(peer.end.Read(100).empty());

  // The RNIC lends the very memory the application reads into.
  std::vector<std::byte> message =
      Encode({{.bufs = 24, .len = 20, .mseq = MSeq(peer.mseq)}, wire::Data{}}, "same");
  const Bytes piece(message);
  peer.engine().HandleReceive({.length = 20, .pieces = {&piece, 1}, .token = 99, .cost = 20});
  const MutableBytes same = MutableBytes(message).subspan(16);
  CHECK(peer.engine().Receive({&same, 1}, {}) == 4);
  Action action;
  REQUIRE(peer.engine().PollAction(&action));
  CHECK(std::get<ReleaseReceive>(action).token == 99);
}

TEST_CASE("Bcopy: the read edge grows with each arrival") {
  ScriptedPeer peer;
  const uint64_t edge = peer.engine().read_edge();
  peer.Say(wire::Data{});
  CHECK(peer.engine().read_edge() == edge);
  peer.Say(wire::Data{}, "a");
  CHECK(peer.engine().read_edge() == edge + 1);
  peer.Say(wire::Data{}, "b");
  CHECK(peer.engine().read_edge() == edge + 2);
  peer.Say(wire::DisConn{});
  CHECK(peer.engine().read_edge() == edge + 3);
}

TEST_CASE("Bcopy: after CloseReceive data is dropped and its memory given back") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "old");
  peer.end.CloseReceive();
  peer.Say(wire::Data{}, "new");
  CHECK(peer.engine().readable_bytes() == 0);
  CHECK(peer.engine().stats().posted_receives == 24);
}

TEST_CASE("Bcopy: after RefuseReceive what came stays to be read, what comes is dropped and told of") {
  ScriptedPeer peer;
  peer.Say(wire::Data{}, "old");
  peer.engine().RefuseReceive();
  peer.end.Drain();
  CHECK_FALSE(peer.engine().refused_data());
  peer.Say(wire::Data{}, "new");
  CHECK(peer.engine().refused_data());
  CHECK(peer.engine().readable_bytes() == 3);
  peer.end.Abort();
  CHECK(peer.end.Read(100) == "old");
}

TEST_CASE("Bcopy: the send buffer's memory is kept for the next write, and goes when it is trimmed") {
  SendBuffer buffer(100000);
  const std::vector<std::byte> data(70000);
  const Bytes piece(data);
  CHECK(buffer.Append({&piece, 1}, 0) == 70000);
  CHECK(buffer.allocated() >= 70000);
  CHECK(buffer.Append({&piece, 1}, 10000) == 30000);
  CHECK(buffer.allocated() == 100000);
  std::array<Bytes, 2> pieces;
  CHECK(buffer.Take(100000, &pieces) == 1);
  CHECK(buffer.allocated() == 100000);
  buffer.Trim();  // it is referenced still
  CHECK(buffer.allocated() == 100000);
  buffer.Reclaim();
  CHECK(buffer.allocated() == 100000);
  CHECK(buffer.Append({&piece, 1}, 0) == 70000);
  buffer.Trim();
  CHECK(buffer.Take(70000, &pieces) == 1);
  buffer.Reclaim();
  CHECK(buffer.Append({&piece, 1}, 69999) == 1);
  CHECK(buffer.Take(1, &pieces) == 1);
  buffer.Reclaim();
  buffer.Trim();  // it was used just now
  CHECK(buffer.allocated() == 100000);
  buffer.Trim();
  CHECK(buffer.allocated() == 0);
}

TEST_CASE(
    "Bcopy: the send buffer's memory goes when it is trimmed, though the engine was not called since it "
    "sent") {
  ScriptedPeer peer({.bufs = 3});
  CHECK(peer.end.Send(std::string(5000, 'x'), {.buffering = Buffering::kFull}) == 5000);
  for (int i = 0; i < 10 && peer.engine().has_unfinished_sends(); ++i) {
    peer.HearAll();
    peer.Say(wire::Data{});
    peer.HearAll();
  }
  REQUIRE_FALSE(peer.engine().has_unfinished_sends());
  REQUIRE(peer.engine().send_buffer_memory() != 0);
  peer.engine().TrimSendBuffer();  // it was used just now
  peer.engine().TrimSendBuffer();
  CHECK(peer.engine().send_buffer_memory() == 0);
}

TEST_CASE("Bcopy: zero bytes are no message") {
  ScriptedPeer peer;
  CHECK(peer.end.Send("") == 0);
  CHECK(peer.engine().Send({}, kSmall) == 0);
  peer.end.Drain();
  CHECK(peer.HearAll() == "nothing");
}

}  // namespace sdp::engine
