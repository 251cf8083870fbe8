// Payload that is read into the memory of a reader who waits, against every split of the stream and every
// wrong guess, without a socket.
#include "verbs/softiwarp/proto/landing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>

#include "test/verbs/bytes.h"
#include "verbs/softiwarp/proto/receive_stream.h"
#include "verbs/softiwarp/proto/send_queue.h"
#include "verbs/softiwarp/wire/read_request.h"

namespace sdp::iwarp::test {
namespace {

void Fixed(MutableBytes out) { std::fill(out.begin(), out.end(), std::byte{0x31}); }

std::vector<std::byte> Counting(size_t size, size_t seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

// What a peer sends: messages, and what else may come between.
struct Sender {
  explicit Sender(uint32_t max_ulpdu) : queue({.max_ulpdu = max_ulpdu}) {}
  void Send(size_t size) {
    sent.push_back(Counting(size, sent.size() + 1));
    const Bytes payload(sent.back());
    queue.Post({.payload = std::span(&payload, size > 0 ? 1 : 0)});
    Drain();
  }
  void AskEmptyRead() {
    std::array<std::byte, kReadRequestSize> header;
    SerializeReadRequest({.sink_stag = STag(7), .source_stag = STag(8)}, header);
    queue.Post({.silent = true, .opcode = RdmapOpcode::kReadRequest, .header = header});
    Drain();
  }
  void WriteNothing() {
    queue.Post({.silent = true, .opcode = RdmapOpcode::kWrite, .stag = STag(9)});
    Drain();
  }
  void Drain() {
    while (!queue.empty()) {
      SendBatch batch;
      queue.BuildBatch(&batch);
      for (const iovec& part : batch.parts())
        Append(&raw, Bytes(static_cast<const std::byte*>(part.iov_base), part.iov_len));
      queue.HandleSent(batch, batch.size());
    }
  }
  SendQueue queue;
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::byte> raw;
};

// A reader as the upper layer is one: what is behind each message's header belongs into its memory, in order.
struct Reader {
  Reader(uint32_t worth, uint32_t header_size)
      : header(header_size), stream({.ird = 4, .worth_placing = worth}, stags, buffers, reads) {
    buffers.Post(100000);
  }

  // One call with memory of `size` bytes, in which the link is read in pieces of the lengths that `next`
  // gives. Bytes taken.
  template <typename Next>
  size_t Call(Bytes raw, size_t size, Next next) {
    constexpr size_t kFence = 64;
    std::vector<std::byte> memory(size + 2 * kFence, std::byte{0x5a});
    const MutableBytes room = MutableBytes(memory).subspan(kFence, size);
    stream.Land(room, header);
    size_t taken = 0;
    for (size_t n = next(); n > 0 && taken < raw.size() && !stream.landing().full(); n = next())
      taken += Read(raw.subspan(taken), n);
    CHECK(stream.EndLanding());
    Take(room);
    stream.FinishReading(taken);
    const auto untouched = [](std::byte b) { return b == std::byte{0x5a}; };
    CHECK(std::all_of(memory.begin(), memory.begin() + kFence, untouched));
    CHECK(std::all_of(memory.end() - kFence, memory.end(), untouched));
    // Nobody looks there any more.
    std::fill(memory.begin(), memory.end(), std::byte{0xee});
    return taken;
  }

  size_t Read(Bytes raw, size_t n) {
    const std::span<const MutableBytes> parts =
        stream.PrepareRead(n % 2 == 0 ? ReadKind::kSleeping : ReadKind::kAtOnce);
    REQUIRE_FALSE(parts.empty());
    size_t taken = 0;
    for (const MutableBytes& part : parts) {
      const size_t here = std::min({part.size(), n - taken, raw.size() - taken});
      if (here > 0) std::memcpy(part.data(), raw.data() + taken, here);
      taken += here;
    }
    stream.HandleRead(taken);
    ReceiveEvent event;
    while (stream.PollEvent(&event)) {
      if (auto* message = std::get_if<ReceivedMessage>(&event)) {
        waiting.push_back(*message);
      } else if (std::holds_alternative<segment::ReadWanted>(event)) {
        stream.HandleReadResponseSent();
      } else {
        error = true;
      }
    }
    return taken;
  }

  // The pieces are moved to where they belong, first to last, as Engine::Receive does it.
  void Take(MutableBytes room) {
    std::vector<std::vector<std::byte>> heads;
    size_t at = 0;
    for (const ReceivedMessage& message : waiting) {
      std::vector<std::byte>& whole = messages.emplace_back();
      size_t skip = std::min<size_t>(header, message.end.length);
      for (size_t i = 0; i < message.body.count; ++i) {
        Bytes piece(message.body.pieces[i].data, message.body.pieces[i].length);
        const size_t in_head = std::min(skip, piece.size());
        Append(&whole, piece.first(in_head));
        skip -= in_head;
        piece = piece.subspan(in_head);
        const size_t here = std::min(piece.size(), room.size() - at);
        if (here > 0) std::memmove(room.data() + at, piece.data(), here);
        Append(&whole, room.subspan(at, here));
        Append(&whole, piece.subspan(here));
        at += here;
        stream.Release(message.body.pieces[i]);
      }
      CHECK(whole.size() == message.end.length);
    }
    waiting.clear();
  }

  uint32_t header;
  StagTable stags{Fixed};
  ReceiveBuffers buffers{1 << 20};
  ReadQueue reads;
  ReceiveStream stream;
  std::vector<ReceivedMessage> waiting;
  std::vector<std::vector<std::byte>> messages;
  bool error = false;
};

// As large as it comes, until nothing more would come at once.
struct Once {
  bool done = false;
  size_t operator()() { return std::exchange(done, true) ? 0 : SIZE_MAX; }
};

void CheckAll(const Reader& reader, const Sender& sender) {
  CHECK_FALSE(reader.error);
  REQUIRE(reader.messages.size() == sender.sent.size());
  CHECK(reader.messages == sender.sent);
  CHECK(reader.stream.at_boundary());
}

}  // namespace

TEST_CASE("landing: a stream that is cut at any byte") {
  const uint32_t max_ulpdu = GENERATE(4000u, 128u);
  const size_t room = GENERATE(as<size_t>(), 60, 200, 100000);
  Sender sender(max_ulpdu);
  for (const size_t size : {48, 48, 48, 48, 48, 11, 48, 0, 3, 48, 48, 300, 300, 300, 48, 4, 5})
    sender.Send(size);
  for (size_t cut = 1; cut < sender.raw.size(); ++cut) {
    CAPTURE(max_ulpdu, room, cut);
    Reader reader(8, 4);
    size_t at = 0;
    // To the cut, in as many calls as it takes; and then on.
    while (at < cut) at += reader.Call(Bytes(sender.raw).first(cut).subspan(at), room, Once{});
    while (at < sender.raw.size()) at += reader.Call(Bytes(sender.raw).subspan(at), room, Once{});
    CheckAll(reader, sender);
  }
}

TEST_CASE("landing: guesses that are right and wrong") {
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    std::minstd_rand random(seed);
    const auto pick = [&](size_t n) { return random() % n; };
    Sender sender(pick(3) == 0 ? 128 : 64768);
    const auto header = static_cast<uint32_t>(pick(20));
    size_t usual = 1 + pick(3000);
    for (int i = 0; i < 60; ++i) {
      if (pick(10) == 0) usual = 1 + pick(3000);
      sender.Send(pick(8) == 0 ? pick(4000) : usual);
      if (pick(30) == 0) sender.AskEmptyRead();
      if (pick(30) == 0) sender.WriteNothing();
    }
    Reader reader(static_cast<uint32_t>(1 + pick(64)), header);
    const size_t most = pick(3) == 0 ? 40 : pick(2) == 0 ? 3000 : 60000;
    size_t room = 1 + pick(20000);
    for (size_t at = 0; at < sender.raw.size();) {
      if (pick(20) == 0) room = 1 + pick(20000);
      size_t reads = 1 + pick(4);
      at +=
          reader.Call(Bytes(sender.raw).subspan(at), room, [&] { return reads-- == 0 ? 0 : 1 + pick(most); });
    }
    CheckAll(reader, sender);
    // All is read: nothing is held.
    CHECK(reader.stream.memory() == 0);
  }
}

TEST_CASE("landing: of a stream of long messages nearly nothing is copied") {
  constexpr uint32_t kHeader = 16;
  constexpr size_t kMessage = 32768;
  Sender sender(64768);
  for (int i = 0; i < 100; ++i) sender.Send(kHeader + kMessage);
  Reader reader(4096, kHeader);
  size_t calls = 0;
  for (size_t at = 0; at < sender.raw.size(); ++calls)
    at += reader.Call(Bytes(sender.raw).subspan(at), 1 << 20, Once{});
  CheckAll(reader, sender);
  CHECK(reader.stream.placed() > 85 * kMessage);
  CHECK(calls < 20);
}

TEST_CASE("landing: of writes that are cut into long messages and a rest, one read takes a whole one") {
  constexpr uint32_t kHeader = 16;
  constexpr size_t kMessage = 64512;
  const size_t write = GENERATE(as<size_t>(), 1 << 20, 100000, 3 * 64512, 64512 + 1000, 64512 + 1);
  CAPTURE(write);
  Sender sender(64768);
  for (int i = 0; i < 40; ++i) {
    for (size_t left = write; left > 0; left -= std::min(left, kMessage))
      sender.Send(kHeader + std::min(left, kMessage));
  }
  Reader reader(4096, kHeader);
  size_t calls = 0;
  for (size_t at = 0; at < sender.raw.size(); ++calls)
    at += reader.Call(Bytes(sender.raw).subspan(at), 1 << 20, Once{});
  CheckAll(reader, sender);
  CHECK(reader.stream.placed() > 40 * write * 8 / 10);
  CHECK(calls < 40 + 20);
}

TEST_CASE("landing: short messages are not looked for one by one") {
  Sender sender(64768);
  for (int i = 0; i < 1000; ++i) sender.Send(200);
  Reader reader(4096, 16);
  size_t calls = 0;
  for (size_t at = 0; at < sender.raw.size(); ++calls)
    at += reader.Call(Bytes(sender.raw).subspan(at), 1 << 20, Once{});
  CheckAll(reader, sender);
  CHECK(reader.stream.placed() == 0);
  CHECK(calls < 20);
}

TEST_CASE("landing: wrong guesses become rare") {
  Landing landing(4096);
  for (int i = 0; i < 3; ++i) landing.HandleMessage(32784, true);
  CHECK(landing.Expected(0) == 32784);
  CHECK(landing.Expected(100) == 32784);
  std::vector<std::byte> memory(1 << 20);
  const auto most = [&] {
    landing.Begin(memory, 16);
    const uint32_t n = landing.most();
    landing.End();
    return n;
  };
  CHECK(most() == Landing::kMostMessages);
  for (int misses = 1; misses < 10; ++misses) {
    landing.HandleMiss();
    const uint32_t pause = (1u << std::min(misses, 6)) - 1;
    for (uint32_t i = 0; i < pause; ++i) CHECK(most() == 1);
    CHECK(most() == Landing::kMostMessages);
  }
  for (int i = 0; i < 64; ++i) landing.HandleLanded();
  landing.HandleMiss();
  CHECK(most() == 1);
  CHECK(most() == Landing::kMostMessages);
}

}  // namespace sdp::iwarp::test
