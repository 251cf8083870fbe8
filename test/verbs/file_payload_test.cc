// Payload that goes from a file's pages to the link.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "test/verbs/changed_link_calls.h"
#include "test/verbs/qp_pair.h"

namespace sdp::iwarp::test {
namespace {

using verbs::Completion;
using verbs::LinkEnd;
using verbs::PostResult;

constexpr size_t kFileSize = 3'000'000;

// Addresses with nothing there.
class Names {
 public:
  Names() : start_(mmap(nullptr, kFileSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    REQUIRE(start_ != MAP_FAILED);
  }
  ~Names() { munmap(start_, kFileSize); }
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;
  [[nodiscard]] Bytes get() const { return {static_cast<const std::byte*>(start_), kFileSize}; }

 private:
  void* start_;
};

Fd FileOf(Bytes content) {
  Fd file(memfd_create("payload", MFD_CLOEXEC));
  REQUIRE(pwrite(file.value, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  return file;
}

QpPair PairOn(bool local) {
  PairOptions options;
  options.a.local_link = options.z.local_link = local;
  QpPair p = MakePair(options);
  REQUIRE((p.a.qp->facts().link == std::string_view("local")) == local);
  return p;
}

void Post(verbs::QueuePair& qp, uint32_t id, Bytes header, Bytes payload) {
  REQUIRE(qp.PostSend({.id = WorkId(id), .header = header, .payload = {&payload, 1}}) == PostResult::kOk);
}

std::vector<std::byte> Joined(const Completion& completion) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < completion.piece_count; ++i)
    bytes.insert(bytes.end(), completion.pieces[i].begin(), completion.pieces[i].end());
  return bytes;
}

// As the C library's, or not at all.
ssize_t (*sendfile_call)(int, int, off64_t*, size_t) = ::sendfile64;
class LinkSendFile : ChangedLinkCalls {
 public:
  explicit LinkSendFile(ssize_t (*call)(int, int, off64_t*, size_t))
      : ChangedLinkCalls([call](LinkCalls& calls) { calls.sendfile = call; }) {}
};

bool Corked(int fd) {
  int on = -1;
  socklen_t length = sizeof on;
  REQUIRE(getsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, &length) == 0);
  return on != 0;
}

TEST_CASE("A borrowed file's FPDUs fill segments together, and nothing of the last is held back") {
  static bool corked;
  corked = false;
  const LinkSendFile calls([](int link, int file, off64_t* offset, size_t size) {
    corked = Corked(link);
    return ::sendfile64(link, file, offset, size);
  });
  QpPair p = MakePair();
  const Fd file = FileOf(Pattern(kFileSize, 8));
  const Names names;
  REQUIRE(p.a.qp->file_source()->BorrowFile({.name = names.get(), .fd = file.value, .offset = 0}));
  Post(*p.a.qp, 1, {}, names.get().first(1000));
  REQUIRE(p.a.qp->Flush());
  p.a.qp->file_source()->ReturnFile();
  REQUIRE(corked);
  REQUIRE_FALSE(Corked(p.a.fd.value));
  p.z.qp->Release(NextCompletion(p.z, p.a).token);
}

TEST_CASE("A borrowed file is sent as if it had been read") {
  const auto how = GENERATE(0, 1, 2, 3);
  const bool local = how == 3;
  // Filesystems without pages to send from, and files that end early according to one call alone, are read.
  const LinkSendFile calls(how == 0 || local ? sendfile_call
                                             : how == 1
                               ? [](int, int, off64_t*, size_t) -> ssize_t { return errno = EINVAL, -1; }
                           : [](int, int, off64_t*, size_t) -> ssize_t { return 0; });
  QpPair p = PairOn(local);
  const auto content = Pattern(kFileSize, 5);
  Fd file = FileOf(content);
  std::vector<size_t> ends;
  {
    const Names names;
    REQUIRE(p.a.qp->file_source()->BorrowFile({.name = names.get(), .fd = file.value, .offset = 0}));
    // Shorter than a frame, as long as some, longer; between them what is memory.
    size_t at = 0;
    for (const size_t size : {1, 900, 1024, 1025, 40'000, 900'000, 900'000, 900'000, 200'000}) {
      Post(*p.a.qp, static_cast<uint32_t>(ends.size()), AsBytes("header"), names.get().subspan(at, size));
      ends.push_back(at += size);
    }
    Post(*p.a.qp, 100, {}, AsBytes("memory"));
    if (!p.a.qp->Flush()) p.a.qp->DetachBorrowed();
    p.a.qp->file_source()->ReturnFile();
  }
  file.Close();
  size_t at = 0;
  for (const size_t end : ends) {
    const Completion got = NextCompletion(p.z, p.a);
    const auto bytes = Joined(got);
    REQUIRE(bytes.size() == 6 + end - at);
    CHECK(std::equal(bytes.begin(), bytes.begin() + 6, AsBytes("header").begin()));
    CHECK(std::equal(bytes.begin() + 6, bytes.end(), content.begin() + static_cast<ptrdiff_t>(at)));
    p.z.qp->Release(got.token);
    at = end;
  }
  const Completion last = NextCompletion(p.z, p.a);
  CHECK(Text(last) == "memory");
  p.z.qp->Release(last.token);
}

TEST_CASE("Part of a file that begins anywhere") {
  QpPair p = PairOn(GENERATE(false, true));
  const auto content = Pattern(kFileSize, 6);
  const Fd file = FileOf(content);
  const Names names;
  REQUIRE(p.a.qp->file_source()->BorrowFile(
      {.name = names.get().first(100'000), .fd = file.value, .offset = 12'345}));
  Post(*p.a.qp, 1, {}, names.get().first(100'000));
  if (!p.a.qp->Flush()) p.a.qp->DetachBorrowed();
  p.a.qp->file_source()->ReturnFile();
  const Completion got = NextCompletion(p.z, p.a);
  const auto bytes = Joined(got);
  REQUIRE(bytes.size() == 100'000);
  CHECK(std::equal(bytes.begin(), bytes.end(), content.begin() + 12'345));
  p.z.qp->Release(got.token);
}

TEST_CASE("A file that is shorter than was said ends the connection") {
  QpPair p = PairOn(GENERATE(false, true));
  const Fd file = FileOf(Pattern(100'000, 7));
  const Names names;
  REQUIRE(p.a.qp->file_source()->BorrowFile({.name = names.get(), .fd = file.value, .offset = 0}));
  Post(*p.a.qp, 1, {}, names.get().first(150'000));
  const bool detached = GENERATE(false, true);
  if (detached) p.a.qp->DetachBorrowed();  // a link that is full: nothing left by itself
  if (!p.a.qp->Flush()) p.a.qp->DetachBorrowed();
  p.a.qp->file_source()->ReturnFile();
  CHECK(p.a.qp->cause().end == LinkEnd::kFailed);
  CHECK(p.a.qp->cause().text.find("file") != std::string::npos);
  CHECK(p.a.qp->unsent_bytes() == 0);
  CHECK_FALSE(Corked(p.a.fd.value));
  p.a.qp.reset();
  p.a.fd.Close();
  (void)p.z.qp->ReadLink();
  Completion completion;
  CHECK_FALSE(p.z.qp->PollCompletion(&completion));  // no message was completed with other bytes
}

TEST_CASE("Connections that have to see their payload borrow no file") {
  PairOptions options;
  const bool crc = GENERATE(true, false);
  options.z.want_crc = crc;
  options.z.want_markers = !crc;
  QpPair p = MakePair(options);
  const Names names;
  CHECK_FALSE(p.a.qp->file_source()->BorrowFile({.name = names.get(), .fd = 0, .offset = 0}));
}

}  // namespace
}  // namespace sdp::iwarp::test
