// Segmentation and framing, without a socket.
#include "verbs/softiwarp/proto/send_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "test/verbs/bytes.h"

namespace sdp::iwarp::test {
namespace {

std::vector<std::byte> Counting(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

void PostSendOf(SendQueue* queue, Bytes payload, Bytes header = {}) {
  queue->Post({.id = WorkId(1), .signaled = true, .header = header, .payload = std::span(&payload, 1)});
}

// Takes at most `limit()` bytes of each batch, as a link might.
template <typename Limit>
std::vector<std::byte> Drain(SendQueue* queue, Limit&& limit) {
  std::vector<std::byte> stream;
  while (!queue->empty()) {
    SendBatch batch;
    queue->BuildBatch(&batch);
    REQUIRE_FALSE(batch.empty());
    const size_t take = std::min<size_t>(batch.size(), limit());
    size_t left = take;
    for (const iovec& part : batch.parts()) {
      const size_t n = std::min(left, part.iov_len);
      Append(&stream, Bytes(static_cast<const std::byte*>(part.iov_base), n));
      left -= n;
    }
    REQUIRE(left == 0);
    queue->HandleSent(batch, take);
  }
  return stream;
}

std::vector<std::byte> DrainAll(SendQueue* queue) {
  return Drain(queue, [] { return SIZE_MAX; });
}

TEST_CASE("RFC 5044, figures 5 and 6: FPDUs with marker and CRC") {
  const std::vector<std::byte> zeros(24);
  SECTION("first FPDU of the stream") {
    SendQueue queue({.crc = true, .markers = true});
    PostSendOf(&queue, zeros);
    auto expected = Hex("00000000 002a 41 43 00000000 00000000 00000001 00000000");
    expected.resize(expected.size() + 24);
    Append(&expected, Hex("52239983"));
    CHECK(DrainAll(&queue) == expected);
  }
  SECTION("second FPDU, a marker inside") {
    SendQueue queue({.crc = true, .markers = true});
    const std::vector<std::byte> first(464);
    PostSendOf(&queue, first);
    REQUIRE(DrainAll(&queue).size() == 492);
    PostSendOf(&queue, zeros);
    auto expected = Hex("002a 41 43 00000000 00000000 00000002 00000000 00000014");
    expected.resize(expected.size() + 24);
    Append(&expected, Hex("84925898"));
    CHECK(DrainAll(&queue) == expected);
  }
}

TEST_CASE("RFC 5041, 5.2: segmentation to the MULPDU") {
  SendQueue queue({.max_ulpdu = 1500});
  const auto data = Counting(2048);
  SECTION("untagged: 1482 and 566 bytes") {
    PostSendOf(&queue, data);
    auto expected = Fpdu({.opcode = 3, .msn = 1}, Bytes(data).first(1482));
    Append(&expected, Fpdu({.last = true, .opcode = 3, .msn = 1, .mo = 1482}, Bytes(data).subspan(1482)));
    CHECK(DrainAll(&queue) == expected);
    CHECK(queue.fpdus() == 2);
  }
  SECTION("tagged: TO 16384 and 17870") {
    const Bytes payload(data);
    queue.Post(
        {.opcode = RdmapOpcode::kWrite, .stag = STag(5), .to = 16384, .payload = std::span(&payload, 1)});
    auto expected = Fpdu({.tagged = true, .opcode = 0, .stag = STag(5), .to = 16384}, payload.first(1486));
    Append(&expected, Fpdu({.tagged = true, .last = true, .opcode = 0, .stag = STag(5), .to = 17870},
                           payload.subspan(1486)));
    CHECK(DrainAll(&queue) == expected);
  }
}

TEST_CASE("small messages leave as one range") {
  SendQueue queue({});
  const auto data = Counting(64);
  for (int i = 0; i < 10; ++i) PostSendOf(&queue, data);
  SendBatch batch;
  queue.BuildBatch(&batch);
  CHECK(batch.parts().size() == 1);
  CHECK(batch.size() == 10 * 88);
}

TEST_CASE("the link takes any number of bytes, and memory may go after Detach") {
  const uint32_t seed = GENERATE(range(1u, 40u));
  CAPTURE(seed);
  std::minstd_rand random(seed);
  const SendOptions options{
      .crc = seed % 2 == 0, .markers = seed % 3 == 0, .max_ulpdu = seed % 5 == 0 ? 200u : kMaxUlpdu};
  SendQueue whole(options);
  SendQueue parts(options);
  const auto data = Counting(200000);
  std::vector<std::byte> stream;
  std::vector<std::byte> expected;
  uint64_t done = 0;
  uint64_t posted = 0;
  for (int round = 0; round < 30; ++round) {
    const size_t size = random() % 4 == 0 ? random() % 100000 : random() % 600;
    const size_t at = random() % (data.size() - size);
    const size_t cut = size / 3;
    // What is posted to `parts` is gone, its memory overwritten, once it was detached.
    auto mortal = Copy(Bytes(data).subspan(at, size));
    const Bytes pieces[] = {Bytes(data).subspan(at, cut), Bytes(data).subspan(at + cut, size - cut)};
    const Bytes mortal_pieces[] = {Bytes(mortal).first(cut), Bytes(mortal).subspan(cut)};
    const auto header = Counting(random() % (kMaxUlpHeader + 1));
    whole.Post({.header = header, .payload = pieces});
    parts.Post({.signaled = true, .header = header, .payload = mortal_pieces});
    ++posted;
    for (int i = 0; i < 3 && !parts.empty(); ++i) {
      SendBatch batch;
      parts.BuildBatch(&batch);
      const size_t take = random() % 5 == 0 ? random() % 7 : random() % (batch.size() + 1);
      size_t left = take;
      for (const iovec& part : batch.parts()) {
        const size_t n = std::min(left, part.iov_len);
        Append(&stream, Bytes(static_cast<const std::byte*>(part.iov_base), n));
        left -= n;
      }
      parts.HandleSent(batch, take);
    }
    bool failed = false;
    parts.Detach(&failed);
    REQUIRE_FALSE(failed);
    std::fill(mortal.begin(), mortal.end(), std::byte{0xee});
    SendDone out;
    while (parts.PollDone(&out)) {
      CHECK_FALSE(out.flushed);
      ++done;
    }
  }
  Append(&stream, Drain(&parts, [&] { return 1 + random() % 50000; }));
  SendDone out;
  while (parts.PollDone(&out)) ++done;
  CHECK(done == posted);
  CHECK(parts.unsent_bytes() == 0);
  CHECK(stream == DrainAll(&whole));
}

TEST_CASE("a Terminate follows the frame that the link has in part") {
  SendQueue queue({.max_ulpdu = 1000});
  const auto data = Counting(5000);
  PostSendOf(&queue, data);
  PostSendOf(&queue, data);
  SendBatch batch;
  queue.BuildBatch(&batch);
  auto stream = std::vector<std::byte>();
  size_t left = 1500;
  for (const iovec& part : batch.parts()) {
    const size_t n = std::min(left, part.iov_len);
    Append(&stream, Bytes(static_cast<const std::byte*>(part.iov_base), n));
    left -= n;
  }
  queue.HandleSent(batch, 1500);
  queue.Terminate(Hex("20020000"));
  Append(&stream, DrainAll(&queue));
  auto expected = Fpdu({.opcode = 3, .msn = 1}, Bytes(data).first(982));
  Append(&expected, Fpdu({.opcode = 3, .msn = 1, .mo = 982}, Bytes(data).subspan(982, 982)));
  Append(&expected, Fpdu({.last = true, .opcode = 7, .queue = 2, .msn = 1}, Hex("20020000")));
  CHECK(stream == expected);
  SendDone out;
  int flushed = 0;
  while (queue.PollDone(&out)) flushed += out.flushed ? 1 : 0;
  CHECK(flushed == 2);
}

TEST_CASE("memory that is deregistered is not read any more") {
  SendQueue queue({});
  auto memory = Counting(1000);
  const Bytes payload(memory);
  queue.Post({.opcode = RdmapOpcode::kReadResponse,
              .stag = STag(1),
              .payload = std::span(&payload, 1),
              .source = STag(77)});
  const auto before = memory;
  bool failed = false;
  CHECK(queue.DetachSource(STag(78), &failed) == 0);
  CHECK(queue.DetachSource(STag(77), &failed) == 1000);
  std::fill(memory.begin(), memory.end(), std::byte{});
  CHECK(DrainAll(&queue) == Fpdu({.tagged = true, .last = true, .opcode = 2, .stag = STag(1)}, before));
}

}  // namespace
}  // namespace sdp::iwarp::test
