// Calls with odd arguments, and errors that one call leaves to the next.
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <cstdio>
#include <vector>

#include "test/posix/twins.h"

namespace posix_test {

TEST_CASE(
    "odd call: recvmmsg keeps the error of a later message, and tells one before what came ahead of it") {
  Pair pair = MakePair();
  char room[2][3];
  iovec iov[2] = {{room[0], 3}, {room[1], 3}};
  mmsghdr messages[2]{};
  for (int i = 0; i < 2; ++i) {
    messages[i].msg_hdr.msg_iov = &iov[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  SECTION("memory that is not there") {
    iov[1].iov_base = nullptr;
    REQUIRE(SendAll(pair.client, "abcdef"));
    REQUIRE(WaitFor(pair.server, POLLIN));
    REQUIRE(Eventually([&] {
      int there = 0;
      return ioctl(pair.server, FIONREAD, &there) == 0 && there == 6;
    }));
    REQUIRE(recvmmsg(pair.server, messages, 2, 0, nullptr) == 1);
    REQUIRE((PollOne(pair.server, POLLIN, 0) & POLLERR) != 0);
    REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == EFAULT);
    REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
    REQUIRE(ReceiveExactly(pair.server, 3) == "def");
  }
  SECTION("a reset while it waits") {
    REQUIRE(SendAll(pair.client, "abc"));
    auto blocked = Async([&] { return recvmmsg(pair.server, messages, 2, 0, nullptr); });
    REQUIRE(StillRunning(blocked));
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    pair.client.reset();
    REQUIRE(Get(blocked) == 1);
    char c;
    REQUIRE_ERRNO(recv(pair.server, &c, 1, 0), ECONNRESET);
    REQUIRE(recv(pair.server, &c, 1, 0) == 0);
  }
  SECTION("a reset behind what is unread") {
    REQUIRE(SendAll(pair.client, "abc"));
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    pair.client.reset();
    REQUIRE(WaitFor(pair.server, POLLERR));
    REQUIRE_ERRNO(recvmmsg(pair.server, messages, 2, 0, nullptr), ECONNRESET);
  }
  SECTION("no more for now") {
    REQUIRE(SendAll(pair.client, "abc"));
    REQUIRE(WaitFor(pair.server, POLLIN));
    SetTimeout(pair.server, SO_RCVTIMEO, 50);
    REQUIRE(recvmmsg(pair.server, messages, 2, 0, nullptr) == 1);
    REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
  }
}

TEST_CASE("odd call: a receive of nothing whose time passes") {
  Pair pair = MakePair();
  char c;
  volatile size_t nothing = 0;
  SetTimeout(pair.server, SO_RCVTIMEO, 50);
  for (const int flags : {0, static_cast<int>(MSG_PEEK), static_cast<int>(MSG_WAITALL)})
    REQUIRE(recv(pair.server, &c, nothing, flags) == 0);
  REQUIRE_ERRNO(recv(pair.server, &c, nothing, MSG_DONTWAIT), EAGAIN);
  SetNonblocking(pair.server);
  REQUIRE_ERRNO(recv(pair.server, &c, nothing, 0), EAGAIN);
}

TEST_CASE("odd call: MSG_FASTOPEN on a connection") {
  Pair pair = MakePair();
  Address other = PeerOf(pair.client);
  volatile size_t nothing = 0;
  REQUIRE_ERRNO(send(pair.client, "x", 1, MSG_FASTOPEN), EISCONN);
  REQUIRE_ERRNO(send(pair.client, "x", nothing, MSG_FASTOPEN), EISCONN);
  REQUIRE_ERRNO(send(pair.client, "x", 1, MSG_FASTOPEN | MSG_OOB), EISCONN);
  REQUIRE_ERRNO(sendto(pair.client, "x", 1, MSG_FASTOPEN, other.get(), other.length), EISCONN);
  other.get()->sa_family = AF_UNSPEC;
  REQUIRE_ERRNO(sendto(pair.client, "x", 1, MSG_FASTOPEN, other.get(), other.length), EOPNOTSUPP);
  REQUIRE(SendAll(pair.client, "y"));
  REQUIRE(ReceiveExactly(pair.server, 1) == "y");
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE_ERRNO(send(pair.client, "x", 1, MSG_FASTOPEN), EISCONN);
}

TEST_CASE("odd call: a counting look ends at a mark, in line or not") {
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, GENERATE(0, 1));
  REQUIRE(SendAll(pair.client, "abc"));
  REQUIRE(send(pair.client, "D", 1, MSG_OOB) == 1);
  REQUIRE(SendAll(pair.client, "efg"));
  REQUIRE(WaitFor(pair.server, POLLPRI));
  char room[16];
  REQUIRE(recv(pair.server, room, 1, 0) == 1);
  REQUIRE(recv(pair.server, room, sizeof room, MSG_PEEK | MSG_TRUNC) == 2);
  REQUIRE(recv(pair.server, room, sizeof room, 0) == 2);
  const ssize_t rest = GetOption(pair.server, SOL_SOCKET, SO_OOBINLINE) != 0 ? 4 : 3;
  REQUIRE(Eventually([&] { return recv(pair.server, room, sizeof room, MSG_PEEK | MSG_TRUNC) == rest; }));
}

TEST_CASE("odd call: poll of more entries than there may be descriptors") {
  Pair pair = MakePair();
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{.rlim_cur = 200, .rlim_max = before.rlim_max};
  std::vector<pollfd> fds(201, pollfd{.fd = pair.client, .events = POLLOUT, .revents = 0});
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const int most = poll(fds.data(), 200, 0);
  errno = 0;
  const int too_many = poll(fds.data(), 201, 0);
  const int error = errno;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(most == 200);
  REQUIRE(too_many == -1);
  REQUIRE(error == EINVAL);
}

TEST_CASE("odd call: sendfile of more than can be counted, and a stream that appends") {
  Pair pair = MakePair();
  const Fd file(open("/proc/self/exe", O_RDONLY));
  off_t offset = 0;
  volatile size_t too_many = size_t{1} << 63;
  REQUIRE_ERRNO(sendfile(pair.client, file, &offset, too_many), EINVAL);
  REQUIRE_ERRNO(sendfile(pair.client, file, nullptr, too_many), EINVAL);
  REQUIRE_ERRNO(sendfile(pair.client, -1, &offset, too_many), EBADF);
  REQUIRE(offset == 0);
  REQUIRE((fcntl(pair.client, F_GETFL) & O_APPEND) == 0);
  FILE* const stream = fdopen(dup(pair.client), "a");
  REQUIRE(stream != nullptr);
  REQUIRE((fcntl(pair.client, F_GETFL) & O_APPEND) != 0);
  REQUIRE(fputs("appended", stream) >= 0);
  REQUIRE(fclose(stream) == 0);
  REQUIRE(ReceiveExactly(pair.server, 8) == "appended");
}

TEST_CASE(
    "odd call: EPOLLEXCLUSIVE comes with a registration alone, and is refused before that is looked for") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  const int fd = GENERATE(0, 1) != 0 ? pair.server.get() : listener.fd.get();
  Fd ep(epoll_create1(0));
  epoll_event event{.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.client, &event) == 0);
  REQUIRE_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &event), ENOENT);
  event.events = EPOLLIN | EPOLLEXCLUSIVE;
  REQUIRE_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &event), EINVAL);
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0);
  event.events = EPOLLIN;
  REQUIRE_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, fd, &event), EINVAL);
}

TEST_CASE("odd call: nothing goes to a socket by splice or sendfile while it appends") {
  Pair pair = MakePair();
  const Fd file(open("/proc/self/exe", O_RDONLY));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Fd out(ends[0]), in(ends[1]);
  REQUIRE(write(in, "abc", 3) == 3);
  off_t offset = 1;
  REQUIRE(fcntl(pair.client, F_SETFL, O_APPEND) == 0);
  REQUIRE_ERRNO(splice(out, nullptr, pair.client, nullptr, 3, 0), EINVAL);
  REQUIRE_ERRNO(sendfile(pair.client, file, &offset, 3), EINVAL);
  REQUIRE_ERRNO(sendfile(pair.client, file, &offset, 100'000), EINVAL);
  REQUIRE(offset == 1);
  REQUIRE(SendAll(pair.client, "written"));
  REQUIRE(ReceiveExactly(pair.server, 7) == "written");
  SetNonblocking(pair.client);  // with O_APPEND
  REQUIRE_ERRNO(sendfile(pair.client, file, &offset, 3), EINVAL);
  REQUIRE(fcntl(pair.client, F_SETFL, 0) == 0);
  REQUIRE(splice(out, nullptr, pair.client, nullptr, 3, 0) == 3);
  REQUIRE(sendfile(pair.client, file, &offset, 3) == 3);
  REQUIRE(ReceiveExactly(pair.server, 6) == "abcELF");
}

TEST_CASE("odd call: what is read and written with flags, as this kernel takes them") {
  Pair pair = MakePair();
  BarePair bare = BareConnection(AF_INET, BareSocket(AF_INET));
  char byte = 'x';
  const iovec piece{&byte, 1};
  const auto error_of = [](long result) { return result == 1 ? 0 : errno; };
  for (const int given :
       {0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x30, 0x40, 0x80, 0x100, 0x108, 0x200, 0x400, 1 << 20}) {
    CAPTURE(given);
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(WaitFor(pair.server, POLLIN));
    REQUIRE(syscall(SYS_write, bare.client.get(), &byte, 1) == 1);
    REQUIRE(error_of(preadv2(pair.server, &piece, 1, -1, given)) ==
            error_of(syscall(SYS_preadv2, bare.server.get(), &piece, 1, -1l, -1l, given)));
    REQUIRE(error_of(pwritev2(pair.server, &piece, 1, -1, given)) ==
            error_of(syscall(SYS_pwritev2, bare.server.get(), &piece, 1, -1l, -1l, given)));
  }
  // RWF_NOSIGNAL: a newer kernel's.
  constexpr int kNoSignal = 0x100;
  if (syscall(SYS_pwritev2, bare.server.get(), &piece, 1, -1l, -1l, kNoSignal) != 1) return;
  REQUIRE(shutdown(pair.server, SHUT_WR) == 0);
  REQUIRE_ERRNO(pwritev2(pair.server, &piece, 1, -1, kNoSignal), EPIPE);
}

TEST_CASE("odd call: SIOCOUTQ of who has written nothing") {
  Listener listener = Listen();
  for (int i = 0; i < 20; ++i) {
    Pair pair = ConnectTo(listener);
    for (const int fd : {pair.server.get(), pair.client.get()}) {
      int queued = -1;
      REQUIRE(ioctl(fd, TIOCOUTQ, &queued) == 0);
      REQUIRE(queued == 0);
      REQUIRE(ioctl(fd, SIOCOUTQNSD, &queued) == 0);
      REQUIRE(queued == 0);
    }
    REQUIRE(SendAll(pair.client, "12345"));
    REQUIRE(ReceiveExactly(pair.server, 5) == "12345");
    int queued = -1;
    REQUIRE(ioctl(pair.client, TIOCOUTQ, &queued) == 0);
    REQUIRE(queued <= 5);
  }
}

}  // namespace posix_test
