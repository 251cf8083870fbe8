#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "test/preload/managed_descriptor.h"
#include "test/preload/prefixed_calls.h"

namespace sdp::preload {
namespace {

constexpr size_t kPiece = 128 * 1024;

class File {
 public:
  explicit File(size_t size) {
    char path[] = "/tmp/sendfile_test.XXXXXX";
    fd = mkstemp(path);
    unlink(path);
    for (size_t i = 0; i < size; ++i) text.push_back(static_cast<char>('a' + i % 23));
    REQUIRE(write(fd, text.data(), size) == static_cast<ssize_t>(size));
    lseek(fd, 0, SEEK_SET);
  }
  ~File() { close(fd); }
  off_t position() const { return lseek(fd, 0, SEEK_CUR); }

  int fd;
  std::string text;
};

std::string Send(size_t length, int flags) {
  return "Send " + std::to_string(length) + " flags " + std::to_string(flags);
}

TEST_CASE("sendfile from an offset leaves the file's position alone") {
  ManagedDescriptor m;
  const File file(1000);
  off_t offset = 100;
  CHECK(sdp_entry_sendfile(m.fd, file.fd, &offset, 500) == 500);
  CHECK(offset == 600);
  CHECK(file.position() == 0);
  CHECK(m.socket->sent == file.text.substr(100, 500));
  CHECK(sdp_entry_sendfile(m.fd, file.fd, &offset, 500) == 400);
  CHECK(sdp_entry_sendfile(m.fd, file.fd, &offset, 500) == 0);
  CHECK(offset == 1000);
}

TEST_CASE("sendfile from the position moves it by what was sent") {
  ManagedDescriptor m;
  const File file(1000);
  m.socket->results = {300};
  CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, 5000) == 300);
  CHECK(file.position() == 300);
  CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, 5000) == 700);
  CHECK(file.position() == 1000);
  CHECK(m.socket->sent == file.text);
  CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, 0) == 0);
}

TEST_CASE("sendfile goes piece by piece, and announces only what will follow") {
  ManagedDescriptor m;
  const File file(2 * kPiece);
  SECTION("to the end of the file, with more wanted") {
    CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, 10 * kPiece) == 2 * kPiece);
    CHECK(m.socket->calls == Calls{Send(kPiece, MSG_MORE), Send(kPiece, 0)});
    CHECK(m.socket->sent == file.text);
  }
  SECTION("within the file") {
    CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, kPiece + 1) == kPiece + 1);
    CHECK(m.socket->calls == Calls{Send(kPiece, MSG_MORE), Send(1, 0)});
  }
  SECTION("until the socket takes no more") {
    m.socket->results = {kPiece, 7};
    CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, 2 * kPiece) == kPiece + 7);
    CHECK(file.position() == kPiece + 7);
  }
  SECTION("until an error, which is told when nothing was sent") {
    m.socket->error = EAGAIN;
    m.socket->results = {kPiece, -1, -1};
    CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, 2 * kPiece) == kPiece);
    CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, 2 * kPiece) == -1);
    CHECK(errno == EAGAIN);
    CHECK(file.position() == kPiece);
  }
}

TEST_CASE("sendfile refuses what the kernel refuses") {
  ManagedDescriptor m;
  const File file(10);
  off_t offset = -1;
  errno = 0;
  CHECK(sdp_entry_sendfile(m.fd, file.fd, &offset, 1) == -1);
  CHECK(errno == EINVAL);
  CHECK(sdp_entry_sendfile(m.fd, m.fd, nullptr, 1) == -1);
  CHECK(errno == EINVAL);
  CHECK(sdp_entry_sendfile(m.fd, -1, nullptr, 1) == -1);
  CHECK(errno == EBADF);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(sdp_entry_sendfile(m.fd, ends[0], nullptr, 1) == -1);
  CHECK(errno == EINVAL);
  offset = 0;
  CHECK(sdp_entry_sendfile(m.fd, ends[0], &offset, 1) == -1);
  CHECK(errno == ESPIPE);
  close(ends[0]);
  close(ends[1]);
  const int write_only = open("/dev/null", O_WRONLY);
  CHECK(sdp_entry_sendfile(m.fd, write_only, nullptr, 1) == -1);
  CHECK(errno == EBADF);
  close(write_only);
  const int folder = open("/", O_RDONLY);
  CHECK(sdp_entry_sendfile(m.fd, folder, nullptr, 1) == -1);
  CHECK(errno == EINVAL);
  close(folder);
}

TEST_CASE("splice from a pipe takes out what the socket takes") {
  ManagedDescriptor m;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], "seven bytes", 11) == 11);
  m.socket->results = {5};
  CHECK(sdp_entry_splice(ends[0], nullptr, m.fd, nullptr, 100, 0) == 5);
  char rest[16];
  CHECK(read(ends[0], rest, sizeof rest) == 6);
  m.socket->results = {-1};
  m.socket->error = EAGAIN;
  REQUIRE(write(ends[1], "kept", 4) == 4);
  errno = 0;
  CHECK(sdp_entry_splice(ends[0], nullptr, m.fd, nullptr, 100, 0) == -1);
  CHECK(errno == EAGAIN);
  CHECK(read(ends[0], rest, sizeof rest) == 4);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("sendfile to a socket that has become TCP is the kernel's") {
  ManagedDescriptor m;
  const File file(10);
  m.socket->results = {kPassThrough};
  CHECK(sdp_entry_sendfile(m.fd, file.fd, nullptr, 10) == 10);
  char b[16];
  CHECK(read(m.peer, b, sizeof b) == 10);
  CHECK(file.position() == 10);
}

}  // namespace
}  // namespace sdp::preload
