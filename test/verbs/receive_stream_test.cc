// The receive side against every split of the stream, without a socket.
#include "verbs/softiwarp/proto/receive_stream.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>

#include "core/base/byte_order.h"
#include "test/verbs/bytes.h"
#include "verbs/softiwarp/proto/send_queue.h"
#include "verbs/softiwarp/wire/ddp_header.h"
#include "verbs/softiwarp/wire/opcode_table.h"

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
  bool keep = false;    // short messages stay lent
  int usual_every = 2;  // so many polls ask for a usual Send first in one of them; 0: in none
  int polls = 0;
  int usual_sends = 0;
  std::vector<AssembledMessage> kept;

  void Release() {
    for (size_t i = 0; i < kept.back().count; ++i) stream.Release(kept.back().pieces[i]);
    kept.pop_back();
  }

  bool PollNext(ReceiveEvent* event) {
    ReceivedMessage usual;
    if (usual_every > 0 && ++polls % usual_every == 0 && stream.PollUsualSend(&usual)) {
      ++usual_sends;
      *event = usual;
      return true;
    }
    return stream.PollEvent(event);
  }

  // Feeds at most `n` raw bytes in one read; returns how many were taken.
  size_t Feed(Bytes raw, size_t n, bool call_over = true) {
    std::span<const MutableBytes> parts = stream.PrepareRead();
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
    while (PollNext(&event)) {
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
    if (call_over) stream.FinishReading(taken);
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
    position += r.Feed(Bytes(raw).subspan(position), n);
  }
  for (const std::string& e : r.errors) FAIL(e);
  REQUIRE(r.messages.size() == sent.size());
  for (size_t i = 0; i < sent.size(); ++i) CHECK(r.messages[i] == sent[i]);
  CHECK(written == source);
  CHECK(read == source);
  CHECK(r.reads_done.size() == 20);
  CHECK(r.stream.at_boundary());
  if (crc || markers) CHECK(r.usual_sends == 0);
  if (!crc && !markers && cut == 4) CHECK(r.usual_sends > 0);
}

// A segment as the link brings it, without CRC.
void AppendSegment(const DdpHeader& header, Bytes payload, std::vector<std::byte>* raw) {
  std::array<std::byte, kMpaLengthSize + kUntaggedHeaderSize> prefix;
  const auto ulpdu = static_cast<uint16_t>(header.size() + payload.size());
  StoreBe<uint16_t>(prefix.data(), ulpdu);
  SerializeDdpHeader(header, prefix.data() + kMpaLengthSize);
  Append(raw, Bytes(prefix).first(kMpaLengthSize + header.size()));
  Append(raw, payload);
  raw->resize(raw->size() + PadSize(ulpdu) + kCrcSize);
}

TEST_CASE("a Send is judged alike, whether or not it is taken as a usual one") {
  struct Case {
    const char* what;
    DdpHeader header;
    uint32_t length = 40;
    uint32_t posted = 2;
    bool rtr = false;
    bool usual = false;
  };
  const auto send = static_cast<uint8_t>(RdmapOpcode::kSend);
  const auto solicited = static_cast<uint8_t>(RdmapOpcode::kSendSe);
  const Case c = GENERATE_COPY(values<Case>({
      {.what = "usual", .header = {.last = true, .opcode = send, .msn = 1}, .usual = true},
      {.what = "solicited", .header = {.last = true, .opcode = solicited, .msn = 1}, .usual = true},
      {.what = "empty", .header = {.last = true, .opcode = send, .msn = 1}, .length = 0, .usual = true},
      {.what = "the first of two segments", .header = {.last = false, .opcode = send, .msn = 1}},
      {.what = "MSN", .header = {.last = true, .opcode = send, .msn = 2}},
      {.what = "MO", .header = {.last = true, .opcode = send, .msn = 1, .mo = 4}},
      {.what = "queue", .header = {.last = true, .opcode = send, .queue = 1, .msn = 1}},
      {.what = "opcode", .header = {.last = true, .opcode = 9, .msn = 1}},
      {.what = "DDP version", .header = {.last = true, .ddp_version = 2, .opcode = send, .msn = 1}},
      {.what = "RDMAP version", .header = {.last = true, .rdmap_version = 3, .opcode = send, .msn = 1}},
      {.what = "invalidates",
       .header = {.last = true,
                  .opcode = static_cast<uint8_t>(RdmapOpcode::kSendInvalidate),
                  .stag = STag(77),
                  .msn = 1}},
      {.what = "longer than the buffer", .header = {.last = true, .opcode = send, .msn = 1}, .length = 2000},
      {.what = "no buffer", .header = {.last = true, .opcode = send, .msn = 1}, .posted = 0},
      {.what = "an RTR", .header = {.last = true, .opcode = send, .msn = 1}, .length = 0, .rtr = true},
      {.what = "data for an RTR", .header = {.last = true, .opcode = send, .msn = 1}, .rtr = true},
  }));
  CAPTURE(c.what);
  std::vector<std::byte> raw;
  const auto payload = Counting(c.length, 3);
  AppendSegment(c.header, payload, &raw);
  AppendSegment({.last = true,
                 .opcode = send,
                 .msn = c.header.msn + (c.header.last ? 1 : 0),
                 .mo = c.header.last ? 0 : c.length},
                Counting(40, 4), &raw);
  struct Outcome {
    std::vector<std::vector<std::byte>> messages;
    std::vector<std::string> errors;
    uint64_t fpdus, memory;
    bool boundary, more_posted;
    bool operator==(const Outcome&) const = default;
  };
  int taken = 0;
  const auto play = [&](int usual_every) {
    Receiver r({.rtr_send = c.rtr});
    r.buffers = ReceiveBuffers(1000);
    r.buffers.Post(c.posted);
    r.usual_every = usual_every;
    r.keep = true;
    r.Feed(raw, SIZE_MAX);
    taken = r.usual_sends;
    return Outcome{r.messages,        r.errors, r.stream.fpdus(), r.stream.memory(), r.stream.at_boundary(),
                   !r.buffers.empty()};
  };
  const Outcome slowly = play(0);
  CHECK(taken == 0);
  CHECK((play(1) == slowly));
  if (c.usual) CHECK(taken == 2);
}

// One read takes several segments of a message in advance. Here they are now as expected, now of other
// lengths, for other places, or Sends in between: every byte comes to its place all the same, and nothing
// beyond the region changes.
TEST_CASE("tagged messages whose segments are not those that were looked forward to") {
  constexpr size_t kFence = 4096;
  constexpr size_t kRegion = 90000;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    std::minstd_rand random(seed);
    const auto pick = [&](size_t n) { return random() % n; };
    Receiver r({.ird = 1, .worth_placing = static_cast<uint32_t>(1 + pick(64))});
    std::vector<std::byte> memory(kRegion + 2 * kFence, std::byte{0x5a});
    const MutableBytes region = MutableBytes(memory).subspan(kFence, kRegion);
    const auto base = reinterpret_cast<uint64_t>(region.data());
    const bool reading = pick(2) == 0;
    const STag stag = *r.stags.Register(region, reading ? Rights::kLocal : Rights::kRemoteWrite);
    std::vector<std::byte> expected(kRegion, std::byte{0x5a});
    std::vector<std::byte> raw;
    std::vector<std::vector<std::byte>> sends;
    uint32_t msn = 1;
    const auto send = [&] {
      sends.push_back(Counting(pick(3) == 0 ? 0 : pick(300), seed + msn));
      AppendSegment({.last = true, .opcode = static_cast<uint8_t>(RdmapOpcode::kSend), .msn = msn++},
                    sends.back(), &raw);
    };
    size_t end = 0;  // Read Responses fill one buffer in order; Writes go anywhere
    for (int message = 0; message < 3; ++message) {
      const size_t usual = 1 + pick(3000);
      const size_t size = 1 + pick(30000);
      const size_t start = reading ? end : pick(kRegion - size);
      end = start + size;
      if (reading) {
        r.reads.Post(
            {.id = WorkId(message + 1),
             .request = {.sink_stag = stag, .sink_to = base + start, .size = static_cast<uint32_t>(size)}});
        r.reads.StartNext(10);
      }
      const auto data = Counting(size, seed + static_cast<size_t>(message) * 13);
      std::copy(data.begin(), data.end(), expected.begin() + static_cast<ptrdiff_t>(start));
      for (size_t at = 0; at < size;) {
        const size_t n = std::min(size - at, pick(12) == 0 ? 1 + pick(6000) : usual);
        AppendSegment(
            {.tagged = true,
             .last = at + n == size,
             .opcode = static_cast<uint8_t>(reading ? RdmapOpcode::kReadResponse : RdmapOpcode::kWrite),
             .stag = stag,
             .to = base + start + at},
            Bytes(data).subspan(at, n), &raw);
        at += n;
        if (pick(25) == 0) send();
      }
      if (pick(2) == 0) send();
    }
    const size_t most = pick(3) == 0 ? 40 : pick(2) == 0 ? 5000 : 100000;
    for (size_t position = 0; position < raw.size();) {
      position += r.Feed(Bytes(raw).subspan(position), 1 + pick(most));
    }
    for (const std::string& e : r.errors) FAIL(e);
    REQUIRE(r.stream.at_boundary());
    REQUIRE(r.messages == sends);
    REQUIRE(r.reads_done.size() == (reading ? 3u : 0u));
    REQUIRE(std::equal(region.begin(), region.end(), expected.begin()));
    for (size_t i = 0; i < kFence; ++i) {
      if (memory[i] != std::byte{0x5a} || memory[memory.size() - 1 - i] != std::byte{0x5a})
        FAIL("beyond the region");
    }
  }
}

TEST_CASE("one read takes many segments of a Read Response, each straight to its place") {
  Receiver r({});
  std::vector<std::byte> memory(1 << 20);
  const STag stag = *r.stags.Register(memory, Rights::kLocal);
  const auto to = reinterpret_cast<uint64_t>(memory.data());
  r.reads.Post({.id = WorkId(1), .request = {.sink_stag = stag, .sink_to = to, .size = 1 << 20}});
  r.reads.StartNext(1);
  SendQueue queue({});
  const auto data = Counting(memory.size(), 9);
  const Bytes payload(data);
  queue.Post(
      {.opcode = RdmapOpcode::kReadResponse, .stag = stag, .to = to, .payload = std::span(&payload, 1)});
  const auto raw = Drain(&queue);
  int reads = 0;
  for (size_t position = 0; position < raw.size(); ++reads)
    position += r.Feed(Bytes(raw).subspan(position), SIZE_MAX);
  CHECK(r.errors.empty());
  CHECK(memory == data);
  CHECK(reads <= 5);
  CHECK(r.stream.placed() > memory.size() - 10000);
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

// The bytes that the next read has room for.
size_t RoomOf(ReceiveStream& stream) {
  size_t room = 0;
  for (const MutableBytes& part : stream.PrepareRead()) room += part.size();
  stream.HandleRead(0);
  return room;
}

TEST_CASE("receive stream: a call's reads become large with the first that was full") {
  Receiver r({});
  const auto body = Counting(60000, 1);
  const Bytes bytes(body);
  SendQueue queue({.max_ulpdu = kMaxSentUlpdu});
  for (int i = 0; i < 8; ++i) queue.Post({.payload = std::span(&bytes, 1)});
  const auto raw = Drain(&queue);
  const size_t fpdu = raw.size() / 8;
  REQUIRE(RoomOf(r.stream) == kSmallChunk);
  size_t at = r.Feed(raw, raw.size(), /*call_over=*/false);
  REQUIRE(at == kSmallChunk);
  REQUIRE(RoomOf(r.stream) == fpdu - kSmallChunk);  // the rest of a large one alone
  at += r.Feed(Bytes(raw).subspan(at), raw.size(), /*call_over=*/false);
  REQUIRE(at == fpdu);
  REQUIRE(RoomOf(r.stream) == ReceiveStream::kUsualRead);
  const auto feed_all = [&] {
    while (at < raw.size()) at += r.Feed(Bytes(raw).subspan(at), raw.size(), /*call_over=*/false);
    r.stream.FinishReading(raw.size());
  };

  SECTION("and stay so over looks in vain") {
    r.stream.FinishReading(0);
    feed_all();
    r.stream.FinishReading(0);
    REQUIRE(RoomOf(r.stream) == ReceiveStream::kUsualRead);
  }
  SECTION("but not over a call that brought little") {
    feed_all();
    queue.Post({.payload = std::span(&bytes, 1)});
    r.Feed(Drain(&queue), 100);
    r.stream.FinishReading(100);
    REQUIRE(RoomOf(r.stream) < ReceiveStream::kUsualRead);
  }
}

}  // namespace
}  // namespace sdp::iwarp::test
