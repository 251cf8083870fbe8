// sendfile of regular files, as servers with one thread for many connections use it.
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

#include <algorithm>

#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

Fd FileOf(const std::string& content) {
  Fd file(memfd_create("posix", MFD_CLOEXEC));
  REQUIRE(pwrite(file, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  return file;
}

// Sends [*offset, end) of the file whenever there is room; false if that ends, or patience does.
bool SendFileTo(int fd, int file, off_t* offset, off_t end) {
  while (*offset < end) {
    const ssize_t n = sendfile(fd, file, offset, static_cast<size_t>(end - *offset));
    if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
    if (n < 0 && !WaitFor(fd, POLLOUT)) return false;
  }
  return true;
}

TEST_CASE("sendfile: a reader that is slower than the sender") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const std::string data = Pattern(6'000'000);
  const Fd file = FileOf(data);
  off_t offset = 0;
  ssize_t n;
  while (offset < static_cast<off_t>(data.size()) &&
         (n = sendfile(pair.client, file, &offset, data.size())) > 0) {
  }
  const auto at_once = static_cast<size_t>(offset);
  REQUIRE(at_once > 0);
  REQUIRE(ReceiveExactly(pair.server, at_once) == data.substr(0, at_once));
  auto receiver = Async([&] { return ReceiveToEnd(pair.server); });
  REQUIRE(SendFileTo(pair.client, file, &offset, static_cast<off_t>(data.size())));
  pair.client.reset();
  REQUIRE(Hash(Get(receiver)) == Hash(data.substr(at_once)));
}

TEST_CASE("sendfile: who was told less than it asked for waits for an edge of room") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const std::string data = Pattern(6'000'000);
  const Fd file = FileOf(data);
  const Fd set(epoll_create1(0));
  epoll_event event{.events = EPOLLOUT | EPOLLET, .data = {}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.client, &event) == 0);
  REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
  off_t offset = 0;
  std::future<std::string> receiver;
  while (offset < static_cast<off_t>(data.size())) {
    const size_t asked = std::min<size_t>(1'000'000, data.size() - static_cast<size_t>(offset));
    const ssize_t n = sendfile(pair.client, file, &offset, asked);
    REQUIRE((n > 0 || errno == EAGAIN));
    if (n == static_cast<ssize_t>(asked)) continue;
    if (!receiver.valid()) receiver = Async([&] { return ReceiveToEnd(pair.server); });
    REQUIRE(epoll_wait(set, &event, 1, kPatienceMs) == 1);
  }
  REQUIRE(receiver.valid());
  pair.client.reset();
  REQUIRE(Hash(Get(receiver)) == Hash(data));
}

TEST_CASE("sendfile: a header, corked or announced by MSG_MORE, and a file behind it") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const std::string header = "HTTP/1.1 200 OK\r\n\r\n";
  const std::string data = Pattern(300'000);
  const Fd file = FileOf(data);
  const bool cork = GENERATE(false, true);
  auto receiver = Async([&] { return ReceiveToEnd(pair.server); });
  std::string expected;
  for (const off_t end : {300'000, 16'384, 16'383, 40'001, 5, 100'000}) {
    if (cork) SetOption(pair.client, IPPROTO_TCP, TCP_CORK, 1);
    REQUIRE(send(pair.client, header.data(), header.size(), cork ? 0 : MSG_MORE) ==
            static_cast<ssize_t>(header.size()));
    off_t offset = 0;
    REQUIRE(SendFileTo(pair.client, file, &offset, end));
    if (cork) SetOption(pair.client, IPPROTO_TCP, TCP_CORK, 0);
    expected += header + data.substr(0, static_cast<size_t>(end));
  }
  pair.client.reset();
  REQUIRE(Hash(Get(receiver)) == Hash(expected));
}

TEST_CASE("sendfile: in turns with send, from anywhere in the file") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const std::string data = Pattern(1'000'000);
  const Fd file = FileOf(data);
  auto receiver = Async([&] { return ReceiveToEnd(pair.server); });
  std::string expected;
  for (size_t i = 0; i < 60; ++i) {
    const size_t begin = i * 7'919 % 500'000;
    const size_t size = 1 + i * 15'013 % 400'000;
    off_t offset = static_cast<off_t>(begin);
    REQUIRE(SendFileTo(pair.client, file, &offset, static_cast<off_t>(begin + size)));
    const std::string between = Pattern(i * 997 % 5'000, static_cast<uint32_t>(i + 2));
    REQUIRE(SendAll(pair.client, between));
    expected += data.substr(begin, size) + between;
  }
  pair.client.reset();
  REQUIRE(Hash(Get(receiver)) == Hash(expected));
}

TEST_CASE("sendfile: the end of the file, and descriptors that cannot be read") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const std::string data = Pattern(100'000);
  const Fd file = FileOf(data);
  off_t offset = 50'000;
  while (offset < 100'000) {
    const ssize_t n = sendfile(pair.client, file, &offset, 1'000'000);
    REQUIRE((n > 0 || errno == EAGAIN));
  }
  REQUIRE(ReceiveExactly(pair.server, 50'000) == data.substr(50'000));
  REQUIRE(sendfile(pair.client, file, &offset, 1'000'000) == 0);
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  const Fd write_only(open(path.c_str(), O_WRONLY));
  const Fd name_only(open(path.c_str(), O_PATH));
  offset = 0;
  REQUIRE_ERRNO(sendfile(pair.client, write_only, &offset, 50'000), EBADF);
  REQUIRE_ERRNO(sendfile(pair.client, name_only, &offset, 50'000), EBADF);
  REQUIRE_ERRNO(sendfile(pair.client, 1'000'000, &offset, 50'000), EBADF);
  REQUIRE(offset == 0);
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
}

TEST_CASE("sendfile: of a file read past the page cache, what was taken arrives") {
  char path[] = "/var/tmp/posix-sendfile-XXXXXX";
  const Fd writer(mkstemp(path));
  REQUIRE(writer >= 0);
  const Fd file(open(path, O_RDONLY | O_DIRECT));
  REQUIRE(unlink(path) == 0);
  if (file < 0) return sdp::test::Skipped("the file system of /var/tmp has no O_DIRECT");
  const std::string data = Pattern(1 << 20);
  REQUIRE(write(writer, data.data(), data.size()) == static_cast<ssize_t>(data.size()));
  Pair pair = MakePair();
  const bool nonblocking = GENERATE(false, true);
  SetNonblocking(pair.client, nonblocking);
  auto receiver = Async([&] { return ReceiveToEnd(pair.server); });
  off_t offset = 0;
  while (offset < static_cast<off_t>(data.size())) {
    const ssize_t n = sendfile(pair.client, file, &offset, data.size());
    if (n > 0) continue;
    REQUIRE(n < 0);
    if (errno == EINVAL) break;  // a piece ended where the next may not begin
    REQUIRE(errno == EAGAIN);
    REQUIRE(WaitFor(pair.client, POLLOUT));
  }
  REQUIRE(offset > 0);
  if (!nonblocking) REQUIRE(offset == static_cast<off_t>(data.size()));
  pair.client.reset();
  REQUIRE(Hash(Get(receiver)) == Hash(data.substr(0, static_cast<size_t>(offset))));
}

TEST_CASE("sendfile: parent and child on one connection, one after the other") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const std::string data = Pattern(2'000'000);
  const Fd file = FileOf(data);
  // First the child: TSan's allocator does not survive a fork while another thread is in it.
  const pid_t child = Child([&] {
    off_t offset = 0;
    return SendFileTo(pair.client, file, &offset, 1'000'000) ? 0 : 1;
  });
  auto receiver = Async([&] { return ReceiveToEnd(pair.server); });
  REQUIRE(ExitedWith(Reap(child), 0));
  off_t offset = 1'000'000;
  REQUIRE(SendFileTo(pair.client, file, &offset, 2'000'000));
  pair.client.reset();
  REQUIRE(Hash(Get(receiver)) == Hash(data));
}

TEST_CASE("sendfile: a peer that has gone is told of") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const Fd file = FileOf(Pattern(1'000'000));
  SetOption(pair.server, SOL_SOCKET, SO_RCVBUF, 4096);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  pair.server.reset();
  REQUIRE(WaitFor(pair.client, POLLERR));
  off_t offset = 0;
  REQUIRE_ERRNO(sendfile(pair.client, file, &offset, 1'000'000), ECONNRESET);
  signal(SIGPIPE, SIG_IGN);
  REQUIRE_ERRNO(sendfile(pair.client, file, &offset, 1'000'000), EPIPE);
  signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace posix_test
