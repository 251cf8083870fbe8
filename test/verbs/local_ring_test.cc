// The ring of a local link: both ends over one memory, and a peer that writes what it likes.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "verbs/softiwarp/local/ring.h"

namespace sdp::iwarp {
namespace {

constexpr size_t kSize = 64 * 1024;

struct Memory {
  RingControl control;
  alignas(64) std::byte first[kSmallestWindow] = {};
  alignas(64) std::byte data[kSize] = {};
  Memory() { InitializeRing(&control); }
  RingMemory Ring() { return {.control = &control, .first = first, .data = data}; }
  RingWriter Writer() { return RingWriter(Ring()); }
  RingReader Reader() { return RingReader(Ring()); }
};

size_t Write(RingWriter& writer, std::string_view text) {
  const iovec part{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  const auto written = writer.Write(std::span(&part, 1));
  REQUIRE(written);
  return *written;
}

std::string Read(RingReader& reader, size_t most = kSize) {
  std::string text(most, '\0');
  const MutableBytes room = std::as_writable_bytes(std::span(text));
  const auto read = reader.Read(std::span(&room, 1));
  REQUIRE(read);
  text.resize(*read);
  return text;
}

// Writes all of both parts in steps, or nothing.
std::optional<size_t> WriteWhole(RingWriter& writer, std::span<const iovec, 2> parts) {
  const size_t size = parts[0].iov_len + parts[1].iov_len;
  if (!writer.Reserve(size)) return 0;
  for (const iovec& part : parts) writer.Put({static_cast<const std::byte*>(part.iov_base), part.iov_len});
  return writer.Show();
}

// Reads in steps, the end first.
std::string ReadInSteps(RingReader& reader, size_t most) {
  const auto unread = reader.Look();
  REQUIRE(unread);
  std::string text(std::min<size_t>(most, unread->size), '\0');
  const MutableBytes room = std::as_writable_bytes(std::span(text));
  const size_t half = room.size() / 2;
  CHECK(reader.Copy(*unread, half, room.subspan(half)) == room.size() - half);
  CHECK(reader.Copy(*unread, 0, room.first(half)) == half);
  CHECK(reader.Copy(*unread, unread->size, room) == 0);
  if (!text.empty()) reader.Take(*unread, text.size());
  return text;
}

TEST_CASE("ring: bytes come out in order, across the end of the window and of the parts") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  std::minstd_rand random(1);
  std::string sent;
  std::string received;
  for (int i = 0; i < 5000; ++i) {
    std::string piece(random() % 3000, '\0');
    for (char& c : piece) c = static_cast<char>(random());
    const size_t cut = piece.empty() ? 0 : random() % piece.size();
    const iovec parts[] = {{piece.data(), cut}, {piece.data() + cut, piece.size() - cut}};
    const auto written = random() % 2 == 0 ? writer.Write(parts) : WriteWhole(writer, parts);
    REQUIRE(written);
    sent += piece.substr(0, *written);
    const size_t most = 1 + random() % 4000;
    if (random() % 2 == 0) received += random() % 2 == 0 ? Read(reader, most) : ReadInSteps(reader, most);
  }
  received += Read(reader);
  REQUIRE((sent == received));
  CHECK(reader.empty());
  CHECK(writer.empty());
}

TEST_CASE(
    "ring: small traffic stays beside the control; a window that proved too small grows once it is empty") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(Write(writer, std::string(100, 'x')) == 100);
    REQUIRE(Read(reader).size() == 100);
  }
  CHECK(memory->control.window == kSmallestWindow);
  for (const std::byte b : memory->data) REQUIRE(b == std::byte{});

  CHECK(Write(writer, std::string(500, 'y')) == 500);  // fits, and does not grow a window in use
  CHECK(Write(writer, std::string(1000, 'y')) == kSmallestWindow - 500);
  CHECK(memory->control.window == kSmallestWindow);
  writer.Arm();
  CHECK_FALSE(writer.has_room());
  CHECK(Read(reader, 750).size() == 750);
  CHECK_FALSE(reader.TakeWriter());  // the writer waits for the empty ring
  CHECK(Read(reader).size() == kSmallestWindow - 750);
  CHECK(reader.TakeWriter());
  CHECK_FALSE(reader.TakeWriter());
  CHECK(writer.has_room());
  CHECK(Write(writer, std::string(10000, 'z')) == 10000);
  CHECK(memory->control.window > kSmallestWindow);
  CHECK(Read(reader) == std::string(10000, 'z'));

  const MutableBytes unused = writer.Shrink();
  CHECK(unused.size() == kSize);
  CHECK(memory->control.window == kSmallestWindow);
  CHECK(writer.Shrink().empty());
  std::memset(unused.data(), 0, unused.size());
  REQUIRE(Write(writer, "after") == 5);
  CHECK(Read(reader) == "after");
}

// Names without memory, as those of a file, of which the first `readable` bytes can be read.
class Unread final : public UnreadPayload {
 public:
  Unread(const char* names, std::string content, size_t readable)
      : names_(reinterpret_cast<const std::byte*>(names)),
        content_(std::move(content)),
        readable_(readable) {}
  [[nodiscard]] bool Holds(const std::byte* at) const override {
    return at >= names_ && at < names_ + content_.size();
  }
  bool Read(const std::byte* from, MutableBytes out) const override {
    const auto at = static_cast<size_t>(from - names_);
    if (at + out.size() > readable_) return false;
    std::memcpy(out.data(), content_.data() + at, out.size());
    return true;
  }

 private:
  const std::byte* names_;
  const std::string content_;
  const size_t readable_;
};

TEST_CASE("ring: what is not in memory is read into the ring, across the end of its window") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  char names[3000];  // never looked at
  std::string content(sizeof names, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>('a' + i % 26);
  const Unread file(names, content, content.size());
  char head[] = "head";
  char tail[] = "tail";
  const iovec parts[] = {{head, 4}, {names, sizeof names}, {tail, 4}};
  for (int i = 0; i < 5; ++i) {
    REQUIRE(writer.Write(parts, &file) == 4 + sizeof names + 4);
    REQUIRE(Read(reader) == "head" + content + "tail");
  }
}

TEST_CASE("ring: a reader asks a writer of before the futexes for nothing that it does not know") {
  const auto memory = std::make_unique<Memory>();
  RingReader reader = memory->Reader();
  CHECK_FALSE(reader.ArmFutex());
  CHECK(reader.armed());
  CHECK_FALSE(reader.at_bell());
  RingWriter writer = memory->Writer();
  CHECK(reader.ArmFutex());
  CHECK(reader.at_bell());
  CHECK(writer.TakeReader() == ReaderState::kAtFutex);
  CHECK(writer.TakeReader() == ReaderState::kAwake);
}

TEST_CASE("ring: where a part cannot be read the reader is shown nothing") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  char names[3000];
  const Unread file(names, std::string(sizeof names, 'x'), 1000);
  char head[] = "head";
  const iovec parts[] = {{head, 4}, {names, sizeof names}};
  CHECK_FALSE(writer.Write(parts, &file));
  CHECK(writer.unreadable());
  CHECK(reader.empty());
  CHECK(Read(reader).empty());
}

TEST_CASE("ring: a full ring of the largest size tells its writer of half the room") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  CHECK(Write(writer, std::string(2 * kSize, 'a')) == kSize);
  writer.Arm();
  CHECK(writer.armed());
  CHECK_FALSE(writer.has_room());
  CHECK(Read(reader, kSize / 2 - 1).size() == kSize / 2 - 1);
  CHECK_FALSE(reader.TakeWriter());
  CHECK(Read(reader, 1).size() == 1);
  CHECK(reader.TakeWriter());
  CHECK_FALSE(writer.armed());
  CHECK(writer.has_room());
}

TEST_CASE("ring: an armed reader is told once") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  CHECK(reader.armed());  // from the beginning
  REQUIRE(Write(writer, "1") == 1);
  CHECK(writer.TakeReader() == ReaderState::kArmed);
  CHECK_FALSE(reader.armed());
  REQUIRE(Write(writer, "2") == 1);
  CHECK(writer.TakeReader() == ReaderState::kAwake);
  CHECK(Read(reader) == "12");
  reader.Arm();
  CHECK(reader.empty());
  REQUIRE(Write(writer, "3") == 1);
  CHECK(writer.TakeReader() == ReaderState::kArmed);
}

TEST_CASE("ring: a reader that has gone is told of with the next write, and arms nothing") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  memory->Reader().Leave();
  REQUIRE(Write(writer, "1") == 1);
  CHECK(writer.TakeReader() == ReaderState::kGone);
  CHECK_FALSE(memory->Reader().armed());
}

TEST_CASE("ring: indices that cannot be are reported, and nothing is touched beyond the data") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  std::byte room[16];
  const MutableBytes target(room);
  const iovec part{.iov_base = room, .iov_len = sizeof room};
  const auto reads = [&] { return reader.Read(std::span(&target, 1)).has_value(); };
  const auto writes = [&] { return writer.Write(std::span(&part, 1)).has_value(); };

  memory->control.head = kSmallestWindow + 1;  // more than the window holds
  CHECK_FALSE(reads());
  memory->control.head = 1;
  memory->control.tail = 2;  // more read than written
  CHECK_FALSE(reads());
  memory->control.tail = 0;
  for (const uint32_t window : {0u, 3u, 4097u, 2u * static_cast<uint32_t>(kSize), ~0u}) {
    CAPTURE(window);
    memory->control.window = window;
    CHECK_FALSE(reads());
    CHECK_FALSE(writes());
  }
  memory->control.window = kSmallestWindow;
  memory->control.head = 0;
  CHECK(writes());
  memory->control.head = uint64_t{1} << 40;
  CHECK_FALSE(writes());
}

TEST_CASE("ring: what the peer stores between the steps of a write or a read moves neither") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  const std::string text(3000, 't');
  std::string got(text.size(), '\0');
  REQUIRE(Write(writer, text) == text.size());
  const auto unread = reader.Look();
  REQUIRE(unread);
  REQUIRE(unread->size == text.size());
  REQUIRE(writer.Reserve(1000));
  memory->control.head = uint64_t{1} << 40;
  memory->control.tail = 77;
  memory->control.window = ~0u;
  CHECK(reader.Copy(*unread, 0, std::as_writable_bytes(std::span(got))) == text.size());
  CHECK(got == text);
  reader.Take(*unread, text.size());
  CHECK(memory->control.tail == text.size());
  writer.Put(std::as_bytes(std::span(text)).first(1000));
  CHECK(writer.Show() == 1000);
  CHECK_FALSE(reader.Look());
  CHECK_FALSE(writer.Reserve(1));
}

TEST_CASE("ring: a peer cannot take back what a look has found, nor have it read twice") {
  const auto memory = std::make_unique<Memory>();
  RingWriter writer = memory->Writer();
  RingReader reader = memory->Reader();
  Write(writer, "abcdef");
  REQUIRE(reader.Look()->size == 6);
  SECTION("taken back") {
    memory->control.head.store(3);
    CHECK_FALSE(reader.Look());
    memory->control.head.store(0);
    CHECK_FALSE(reader.Look());
    memory->control.head.store(7);
    CHECK(reader.Look()->size == 7);
  }
  SECTION("said to be read") {
    memory->control.tail.store(6);
    CHECK(reader.Look()->size == 6);
    CHECK(Read(reader) == "abcdef");
  }
  SECTION("said to be unread again") {
    CHECK(Read(reader) == "abcdef");
    memory->control.tail.store(0);
    CHECK(reader.Look()->size == 0);
    CHECK(Read(reader).empty());
  }
}

TEST_CASE("ring: two threads, each asleep whenever it has armed and found nothing") {
  const auto memory = std::make_unique<Memory>();
  constexpr uint64_t kTotal = 20'000'000;
  // Stands for the doorbell: counts, so that a lost ring shows as a thread that never ends.
  struct Bell {
    std::atomic<uint32_t> rung{0};
    void Ring() {
      rung.fetch_add(1);
      rung.notify_one();
    }
    void Wait() {
      rung.wait(0);
      rung.exchange(0);
    }
  } for_reader, for_writer;
  std::thread producer([&] {
    RingWriter writer = memory->Writer();
    std::vector<uint8_t> piece(5000);
    uint64_t sent = 0;
    std::minstd_rand random(3);
    while (sent < kTotal) {
      const size_t size = std::min<uint64_t>(1 + random() % piece.size(), kTotal - sent);
      for (size_t i = 0; i < size; ++i) piece[i] = static_cast<uint8_t>((sent + i) * 7);
      const iovec part{.iov_base = piece.data(), .iov_len = size};
      const auto written = writer.Write(std::span(&part, 1));
      if (!written) return;
      sent += *written;
      if (*written > 0 && writer.TakeReader() == ReaderState::kArmed) for_reader.Ring();
      if (*written > 0) continue;
      writer.Arm();
      if (!writer.has_room()) for_writer.Wait();
    }
  });
  RingReader reader = memory->Reader();
  std::vector<uint8_t> piece(7000);
  uint64_t received = 0;
  bool good = true;
  while (received < kTotal) {
    const MutableBytes room = std::as_writable_bytes(std::span(piece));
    const auto read = reader.Read(std::span(&room, 1));
    if (!read) break;
    for (size_t i = 0; i < *read; ++i) good = good && piece[i] == static_cast<uint8_t>((received + i) * 7);
    received += *read;
    if (*read > 0 && reader.TakeWriter()) for_writer.Ring();
    if (*read > 0) continue;
    reader.Arm();
    if (reader.empty()) for_reader.Wait();
  }
  producer.join();
  CHECK(good);
  CHECK(received == kTotal);
}

}  // namespace
}  // namespace sdp::iwarp
