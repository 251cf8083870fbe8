#include "tools/stats/stats_image.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "test/tools/stats_fixture.h"
#include "tools/stats/process_title.h"
#include "tools/stats/stats_reader.h"

namespace sdp::stats {
namespace {

// A file as a process leaves it, with one connection.
std::vector<std::byte> GoodImage() {
  TemporaryDirectory directory;
  std::string error;
  auto segment = StatsSegment::Open(directory.path(), PlainSystemCalls(), &error);
  REQUIRE(segment != nullptr);
  segment->AcquireSlot(EstablishedConnection());
  std::ifstream file(segment->path(), std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::byte> image(text.size());
  memcpy(image.data(), text.data(), text.size());
  return image;
}

size_t UsedSlot(const std::vector<std::byte>& image) {
  for (size_t i = 0; i < *CountSlots(image); ++i) {
    if (SlotSequence(image, i) != 0) return i;
  }
  return 0;
}

template <typename T>
void Put(std::vector<std::byte>& image, size_t offset, T value) {
  memcpy(image.data() + offset, &value, sizeof value);
}

TEST_CASE("every truncation of an image is an error or fewer slots, never a read beyond it") {
  std::vector<std::byte> image = GoodImage();
  for (size_t size = 0; size <= image.size(); size += size < kHeaderSize + 2 * kSlotSize ? 1 : 1021) {
    std::vector<std::byte> part(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    auto process = ParseImage(part);
    CHECK(process.has_value() == (size >= kHeaderSize));
  }
}

TEST_CASE("each header field that another layout would have is refused") {
  auto damaged = [](size_t offset, auto value) {
    std::vector<std::byte> image = GoodImage();
    Put(image, offset, value);
    return ParseImage(image).error();
  };
  CHECK(damaged(offsetof(Header, magic), uint64_t{0}) == ImageError::kNotOurs);
  CHECK(damaged(offsetof(Header, version), uint32_t{kVersion + 1}) == ImageError::kVersion);
  CHECK(damaged(offsetof(Header, header_size), uint32_t{64}) == ImageError::kBadLayout);
  CHECK(damaged(offsetof(Header, slot_size), uint32_t{0}) == ImageError::kBadLayout);
  for (auto error :
       {ImageError::kTooShort, ImageError::kNotOurs, ImageError::kVersion, ImageError::kBadLayout}) {
    CHECK(std::string(ToString(error)) != "unknown");
  }
}

// Those of another version would be refused at once, and a fuzzer that begins with them finds nothing.
TEST_CASE("the fuzzer's seeds are of the present version") {
  size_t present = 0;
  for (const auto& seed : std::filesystem::directory_iterator(SDP_STATS_CORPUS)) {
    std::ifstream file(seed.path(), std::ios::binary);
    struct {
      uint64_t magic;
      uint32_t version;
    } first = {};
    file.read(reinterpret_cast<char*>(&first), offsetof(Header, version) + sizeof first.version);
    if (file && first.magic == kMagic && first.version == kVersion) ++present;
  }
  CHECK(present >= 10);
  for (const char* name : {"header", "three_records"}) {
    INFO(name);
    CHECK(std::filesystem::exists(std::filesystem::path(SDP_STATS_CORPUS) / name));
  }
}

TEST_CASE("a slot count beyond the file is cut to the file") {
  std::vector<std::byte> image = GoodImage();
  Put(image, offsetof(Header, slot_count), ~uint64_t{0});
  CHECK(*CountSlots(image) == SlotsIn(image.size()));
  CHECK(ParseImage(image)->records.size() == 1);
}

TEST_CASE("a slot in the middle of a publish is left out") {
  std::vector<std::byte> image = GoodImage();
  Put(image, SlotOffset(UsedSlot(image)), uint64_t{3});
  CHECK(ParseImage(image)->records.empty());
}

TEST_CASE("hostile records are made harmless") {
  std::vector<std::byte> image = GoodImage();
  size_t slot = UsedSlot(image);
  size_t record = SlotOffset(slot) + offsetof(Slot, words);
  memset(image.data() + record, 0xFF, sizeof(ConnectionRecord));
  CHECK(ParseImage(image)->records.empty());  // no such kind

  Put(image, record + offsetof(ConnectionRecord, kind), Kind::kConnection);
  Put(image, record + offsetof(ConnectionRecord, reason), char{'\x1B'});
  memset(image.data() + offsetof(Header, program), '\n', sizeof(Header::program));
  auto process = ParseImage(image);
  REQUIRE(process->records.size() == 1);
  const ConnectionRecord& read = process->records[0];
  CHECK(read.counters.state == State::kNone);
  CHECK(read.counters.sink_mode == FlowMode::kBuffered);
  CHECK(read.role == Role::kNone);
  CHECK(read.local.family == 0);
  CHECK(std::string(read.reason) == std::string(sizeof read.reason - 1, '?'));
  CHECK(process->program == std::string(sizeof(Header::program) - 1, '?'));
}

TEST_CASE("a process's title is what it adds to the name, without its command") {
  using namespace std::string_literals;
  CHECK(TitleIn("nginx: worker process\0\0\0\0"s, "nginx") == "worker process");
  CHECK(TitleIn("nginx: master process nginx -c /etc/nginx/nginx.conf\0"s, "nginx") == "master process");
  CHECK(TitleIn("nginx: master process /usr/sbin/nginx -g x;\0"s, "nginx") == "master process");
  CHECK(TitleIn("postgres: 15/main: joe sales 10.0.0.2(41000) idle \0"s, "postgres") ==
        "15/main: joe sales 10.0.0.2(41000) idle");
  CHECK(TitleIn("postgres: postgres postgres 10.0.0.2(41000) idle\0"s, "postgres") ==
        "postgres postgres 10.0.0.2(41000) idle");
  CHECK(TitleIn("nginx: master process nginx\0"s, "nginx") == "master process");
  CHECK(TitleIn("php-fpm: pool www\0"s, "php-fpm8.2") == "pool www");
  CHECK(TitleIn("sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups\0"s, "sshd").empty());
  CHECK(TitleIn("nginx\0-c\0a: b\0"s, "nginx").empty());
  CHECK(TitleIn("/opt/a: b/program\0"s, "program").empty());
  CHECK(TitleIn("", "program").empty());
  CHECK(TitleIn("x: \x1b[2J"s, "x") == "?[2J");
  CHECK(TitleIn("x: " + std::string(200, 'y'), "x") == std::string(37, 'y') + "...");
}

TEST_CASE("many unusable files make one warning for each cause") {
  CHECK(GroupWarnings({}).empty());
  CHECK(GroupWarnings({{"/a/1-2.stats", "too large"}}) ==
        std::vector<std::string>{"/a/1-2.stats: too large"});
  std::vector<FileWarning> many(1000, {"/b/3-4.stats", "belongs to another user than its process"});
  many.push_back({"/a/1-2.stats", "too large"});
  CHECK(GroupWarnings(many) ==
        std::vector<std::string>{"/b/3-4.stats: belongs to another user than its process; so 999 more",
                                 "/a/1-2.stats: too large"});
}

TEST_CASE("files that are not what their name says are reported and skipped") {
  TemporaryDirectory directory;
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  std::string field;
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  for (int i = 3; i <= 22; ++i) fields >> field;
  std::string path = directory.path() + "/" + std::to_string(getpid()) + "-" + field + ".stats";

  SECTION("another file altogether, in the process's maps or not") {
    std::ofstream(path) << "hello";
    CHECK(ReadAll({directory.path()}).processes.empty());
  }
  SECTION("a directory") {
    mkdir(path.c_str(), 0700);
    Snapshot snapshot = ReadAll({directory.path()});
    CHECK(snapshot.processes.empty());
    CHECK(snapshot.warnings.size() == 1);
  }
  SECTION("a pipe, which must not block the reader") {
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK(ReadAll({directory.path()}).warnings.size() == 1);
  }
  SECTION("a symbolic link") {
    REQUIRE(symlink("/etc/passwd", path.c_str()) == 0);
    CHECK(ReadAll({directory.path()}).warnings.size() == 1);
  }
  SECTION("names that are almost right") {
    for (const char* name : {"1-2.stat", "1-2.statsx", "x-2.stats", "1.stats", "-1-2.stats", "0-0.stats"}) {
      std::ofstream(directory.path() + "/" + name) << "x";
    }
    Snapshot snapshot = ReadAll({directory.path()});
    CHECK(snapshot.warnings.empty());
    CHECK(std::filesystem::exists(directory.path() + "/1-2.statsx"));
  }
  SECTION("a directory that is not there") { CHECK(ReadAll({directory.path() + "/none"}).warnings.empty()); }
}

}  // namespace
}  // namespace sdp::stats
