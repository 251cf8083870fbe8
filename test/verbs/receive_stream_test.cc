// The receive side against every split of the stream, without a socket.
#include "verbs/softiwarp/proto/receive_stream.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>

#include "test/verbs/bytes.h"
#include "verbs/softiwarp/proto/send_queue.h"

namespace sdp::iwarp::test {
namespace {

void Fixed(MutableBytes out) {
  static uint8_t next = 0;
  for (std::byte& b : out) b = static_cast<std::byte>(++next * 37);
}

struct Receiver {
  explicit Receiver(const ReceiveOptions& options) : stream(options, stags, buffers, reads) {
    buffers.Post(1000);
  }
  StagTable stags{Fixed};
  ReceiveBuffers buffers{1 << 20};
  ReadQueue reads;
  ReceiveStream stream;
  std::vector<std::vector<std::byte>> messages;
  std::vector<std::string> errors;
  std::vector<uint64_t> reads_done;
  bool keep = false;  // short messages stay lent
  std::vector<AssembledMessage> kept;

  void Release() {
    for (size_t i = 0; i < kept.back().count; ++i) stream.Release(kept.back().pieces[i]);
    kept.pop_back();
  }

  // Feeds at most `n` raw bytes in one read; returns how many were taken.
  size_t Feed(Bytes raw, size_t n, ReadKind kind = ReadKind::kAtOnce) {
    std::span<const MutableBytes> parts = stream.PrepareRead(kind);
    REQUIRE_FALSE(parts.empty());
    std::array<MutableBytes, MarkerSieve::kMaxParts> split;
    if (stream.sieve() != nullptr) parts = std::span(split).first(stream.sieve()->Split(parts, split));
    size_t taken = 0;
    for (const MutableBytes& part : parts) {
      const size_t here = std::min({part.size(), n - taken, raw.size() - taken});
      if (here > 0) std::memcpy(part.data(), raw.data() + taken, here);
      taken += here;
    }
    stream.HandleRead(stream.sieve() != nullptr ? stream.sieve()->HandleRead(taken) : taken);
    ReceiveEvent event;
    while (stream.PollEvent(&event)) {
      if (auto* message = std::get_if<ReceivedMessage>(&event)) {
        std::vector<std::byte> bytes;
        for (size_t i = 0; i < message->body.count; ++i)
          Append(&bytes, Bytes(message->body.pieces[i].data, message->body.pieces[i].length));
        CHECK(bytes.size() == message->end.length);
        kept.push_back(message->body);
        if (!keep || bytes.size() > 1000) Release();
        messages.push_back(std::move(bytes));
      } else if (auto* done = std::get_if<segment::ReadDone>(&event)) {
        reads_done.push_back(done->id.value());
      } else if (auto* violation = std::get_if<Violation>(&event)) {
        errors.push_back(violation->text);
      }
    }
    stream.FinishReading(taken);
    return taken;
  }
};

std::vector<std::byte> Drain(SendQueue* queue) {
  std::vector<std::byte> stream;
  while (!queue->empty()) {
    SendBatch batch;
    queue->BuildBatch(&batch);
    for (const iovec& part : batch.parts())
      Append(&stream, Bytes(static_cast<const std::byte*>(part.iov_base), part.iov_len));
    queue->HandleSent(batch, batch.size());
  }
  return stream;
}

std::vector<std::byte> Counting(size_t size, size_t seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  return bytes;
}

// How the stream is cut: in single bytes, at random, or as large as it comes.
TEST_CASE("Sends, Writes and Read Responses in every split") {
  const int cut = GENERATE(0, 1, 2, 3, 4);
  const bool crc = GENERATE(false, true);
  const bool markers = GENERATE(false, true);
  const uint32_t max_ulpdu = GENERATE(128u, 1460u, 65535u);
  CAPTURE(cut, crc, markers, max_ulpdu);
  std::minstd_rand random(static_cast<uint32_t>(cut * 1000 + max_ulpdu));

  Receiver r({.crc = crc, .markers = markers, .ird = 1});
  std::vector<std::byte> written(60000), read(60000);
  const STag sink = *r.stags.Register(written, Rights::kRemoteWrite);
  const STag read_sink = *r.stags.Register(read, Rights::kLocal);

  SendQueue queue({.crc = crc, .markers = markers, .max_ulpdu = max_ulpdu});
  std::vector<std::vector<std::byte>> sent;
  const auto source = Counting(60000, 5);
  uint64_t at = reinterpret_cast<uint64_t>(written.data());
  uint64_t read_at = reinterpret_cast<uint64_t>(read.data());
  size_t moved = 0;
  std::vector<std::byte> raw;
  for (size_t i = 0; i < 20; ++i) {
    const size_t size = i % 3 == 0 ? i : (i * 1777) % 21000;
    sent.push_back(Counting(size, i));
    const Bytes payload(sent.back());
    queue.Post({.payload = std::span(&payload, 1)});
    const Bytes part = Bytes(source).subspan(moved, 60000 / 20);
    queue.Post(
        {.opcode = RdmapOpcode::kWrite, .stag = sink, .to = at + moved, .payload = std::span(&part, 1)});
    r.reads.Post(
        {.id = WorkId(i), .request = {.sink_stag = read_sink, .sink_to = read_at + moved, .size = 3000}});
    r.reads.StartNext(100);
    queue.Post({.opcode = RdmapOpcode::kReadResponse,
                .stag = read_sink,
                .to = read_at + moved,
                .payload = std::span(&part, 1)});
    moved += part.size();
    Append(&raw, Drain(&queue));
  }
  // Byte by byte all of it would take long under sanitizers: a part, then the rest at random.
  size_t position = 0;
  while (position < raw.size()) {
    const size_t n = cut == 0   ? (position < 20000 ? 1 : 5000)
                     : cut == 1 ? 1 + random() % 9 + (position > 30000 ? random() % 9999 : 0)
                     : cut == 2 ? 1 + random() % 3000
                     : cut == 3 ? 1 + random() % 70000
                                : SIZE_MAX;
    position +=
        r.Feed(Bytes(raw).subspan(position), n, random() % 4 == 0 ? ReadKind::kSleeping : ReadKind::kAtOnce);
  }
  for (const std::string& e : r.errors) FAIL(e);
  REQUIRE(r.messages.size() == sent.size());
  for (size_t i = 0; i < sent.size(); ++i) CHECK(r.messages[i] == sent[i]);
  CHECK(written == source);
  CHECK(read == source);
  CHECK(r.reads_done.size() == 20);
  CHECK(r.stream.at_boundary());
}

TEST_CASE("memory that is deregistered in the middle of a segment is not written any more") {
  const bool crc = GENERATE(false, true);
  Receiver r({.crc = crc});
  std::vector<std::byte> memory(60000);
  const STag stag = *r.stags.Register(memory, Rights::kRemoteWrite);
  SendQueue queue({.crc = crc});
  const auto data = Counting(60000, 1);
  const Bytes payload(data);
  queue.Post({.opcode = RdmapOpcode::kWrite,
              .stag = stag,
              .to = reinterpret_cast<uint64_t>(memory.data()),
              .payload = std::span(&payload, 1)});
  const auto raw = Drain(&queue);
  size_t position = r.Feed(raw, 20000);
  r.stags.Deregister(stag);
  r.stream.HandleDeregister(stag);
  std::fill(memory.begin(), memory.end(), std::byte{0x77});
  while (position < raw.size() && r.errors.empty()) position += r.Feed(Bytes(raw).subspan(position), 9000);
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0x77}; }));
  REQUIRE(r.errors.size() == 1);
  CHECK(r.errors[0].find("invalid STag") != std::string::npos);
}

TEST_CASE("memory that moves in the middle of a segment is written on at its new place") {
  const bool crc = GENERATE(false, true);
  Receiver r({.crc = crc});
  std::vector<std::byte> memory(60000);
  const STag stag = *r.stags.Register(memory, Rights::kRemoteWrite);
  SendQueue queue({.crc = crc});
  const auto data = Counting(60000, 1);
  const Bytes payload(data);
  queue.Post({.opcode = RdmapOpcode::kWrite,
              .stag = stag,
              .to = reinterpret_cast<uint64_t>(memory.data()),
              .payload = std::span(&payload, 1)});
  const auto raw = Drain(&queue);
  size_t position = r.Feed(raw, 20000);
  auto place = memory;
  const auto from = r.stags.Move(stag, place);
  REQUIRE(from == memory.data());
  r.stream.HandleMove(stag, *from, place.data());
  std::fill(memory.begin(), memory.end(), std::byte{0x77});
  while (position < raw.size()) position += r.Feed(Bytes(raw).subspan(position), 9000);
  CHECK(r.errors.empty());
  CHECK(place == data);
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0x77}; }));
}

TEST_CASE(
    "a message in more segments than there are pieces is one piece; larger buffers may come meanwhile") {
  Receiver r({});
  r.buffers.SetSize(1 << 22);
  SendQueue queue({.max_ulpdu = 5000});
  const auto data = Counting(900000, 3);
  const Bytes payload(data);
  queue.Post({.payload = std::span(&payload, 1)});
  const auto raw = Drain(&queue);
  size_t position = 0;
  while (position < raw.size()) {
    if (position > 100000) r.buffers.Post(1);
    position += r.Feed(Bytes(raw).subspan(position), 33333);
  }
  REQUIRE(r.messages.size() == 1);
  CHECK(r.messages[0] == data);
}

// What one hostile peer may pin. Few bytes of messages, never read, among much of the stream that is none.
TEST_CASE("memory is bounded by what is lent, whatever lies between the messages") {
  enum class Between { kNothing, kEmptyWrites, kWrites };
  const Between between = GENERATE(Between::kNothing, Between::kEmptyWrites, Between::kWrites);
  const bool in_halves = GENERATE(false, true);         // each message in two segments
  const bool released_between = GENERATE(false, true);  // each followed by one that is read at once
  const bool crc = GENERATE(false, true);
  const size_t read_size = GENERATE(100u, 20000u, 300000u);
  CAPTURE(static_cast<int>(between), in_halves, released_between, crc, read_size);

  Receiver r({.crc = crc, .ird = 1});
  r.buffers.Post(100000);
  r.keep = true;
  std::vector<std::byte> memory(60000);
  const STag stag = *r.stags.Register(memory, Rights::kRemoteWrite);
  SendQueue queue({.crc = crc, .max_ulpdu = in_halves ? 128u : kMaxSentUlpdu});
  const auto tiny = Counting(in_halves ? 120 : 17, 1);
  const Bytes tiny_bytes(tiny), much(memory);
  std::vector<std::byte> round;
  uint64_t worst = 0;
  for (int i = 0; i < 30; ++i) {
    queue.Post({.payload = std::span(&tiny_bytes, 1)});
    if (released_between) queue.Post({.id = WorkId(7), .payload = std::span(&much, 1)});
    for (int k = 0; between == Between::kEmptyWrites && k < 12000; ++k)
      queue.Post({.opcode = RdmapOpcode::kWrite, .stag = STag(1)});
    for (int k = 0; between == Between::kWrites && k < 5; ++k) {
      queue.Post({.opcode = RdmapOpcode::kWrite,
                  .stag = stag,
                  .to = reinterpret_cast<uint64_t>(memory.data()),
                  .payload = std::span(&much, 1)});
    }
    const auto raw = Drain(&queue);
    for (size_t at = 0; at < raw.size();) {
      at += r.Feed(Bytes(raw).subspan(at), read_size);
      worst = std::max(worst, r.stream.memory());
    }
  }
  REQUIRE(r.errors.empty());
  CHECK(r.messages.size() == (released_between ? 60 : 30));
  // One read, one incomplete message of the largest size; and what was lent at once, which is small.
  CHECK(worst <=
        ReceiveStream::kFreeMemory + kBigChunk + (1 << 20) + 3 * (memory.size() + 30 * tiny.size()) + 4096);
  while (!r.kept.empty()) r.Release();
  CHECK(r.stream.memory() <= kBigChunk + sizeof(Chunk));
}

}  // namespace
}  // namespace sdp::iwarp::test
