// What one process does to a socket that two have, the other finds: options, what was looked at, errors,
// urgent bytes.
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <map>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

// `body` in a child that ends before this returns.
void InChild(const std::function<bool()>& body) {
  REQUIRE(ExitedWith(Reap(Child([&] { return body() ? 0 : 1; })), 0));
}

TEST_CASE("fork: options that a child sets are its parent's, too") {
  Pair pair = MakePair();
  char c;
  InChild([&] {
    const int on = 1;
    return ioctl(pair.server, FIONBIO, &on) == 0;
  });
  REQUIRE(IsNonblocking(pair.server));
  REQUIRE_ERRNO(recv(pair.server, &c, 1, 0), EAGAIN);
  InChild([&] {
    SetNonblocking(pair.server, false);
    SetTimeout(pair.server, SO_RCVTIMEO, 50);
    SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 3);
    SetOption(pair.server, IPPROTO_TCP, TCP_NODELAY, 1);
    SetOption(pair.server, SOL_SOCKET, SO_KEEPALIVE, 1);
    const linger seven{.l_onoff = 1, .l_linger = 7};
    return setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &seven, sizeof seven) == 0;
  });
  REQUIRE_FALSE(IsNonblocking(pair.server));
  REQUIRE_ERRNO(recv(pair.server, &c, 1, 0), EAGAIN);  // by the time-out
  REQUIRE(GetOption(pair.server, IPPROTO_TCP, TCP_NODELAY) == 1);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_KEEPALIVE) == 1);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT) == 3);
  linger read{};
  socklen_t length = sizeof read;
  REQUIRE(getsockopt(pair.server, SOL_SOCKET, SO_LINGER, &read, &length) == 0);
  REQUIRE(read.l_onoff == 1);
  REQUIRE(read.l_linger == 7);
  REQUIRE(SendAll(pair.client, "ab"));
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE(SendAll(pair.client, "c"));
  REQUIRE(WaitFor(pair.server, POLLIN));
}

// Receives one byte. Returns how many more TCP_INQ tells of; -1: it tells nothing.
int LeftBehindOne(int fd) {
  char byte;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec piece{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(fd, &message, 0) != 1) return -1;
  const cmsghdr* const told = CMSG_FIRSTHDR(&message);
  if (told == nullptr || told->cmsg_level != SOL_TCP || told->cmsg_type != TCP_CM_INQ) return -1;
  int left;
  memcpy(&left, CMSG_DATA(told), sizeof left);
  return left;
}

TEST_CASE("fork: control messages that a child asks for are its parent's, too") {
  Pair pair = MakePair();
  InChild([&] {
    SetOption(pair.server, IPPROTO_TCP, TCP_INQ, 1);
    return true;
  });
  REQUIRE(SendAll(pair.client, "0123"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(LeftBehindOne(pair.server) == 3);
}

TEST_CASE("rights: control messages that were asked for come with the connection") {
  UnixPair channel;
  const pid_t pid = Fork([&] { return LeftBehindOne(TakeFrom(channel.z)) == 3 ? 0 : 1; });
  Pair pair = MakePair();
  SetOption(pair.server, IPPROTO_TCP, TCP_INQ, 1);
  REQUIRE(SendAll(pair.client, "0123"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(Pass(channel.a, pair.server));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: what was looked at is read by whoever comes first") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "abcdef"));
  char bytes[8] = {};
  REQUIRE(recv(pair.server, bytes, 3, MSG_PEEK | MSG_WAITALL) == 3);
  InChild([&] {
    char some[8] = {};
    return recv(pair.server, some, 2, MSG_WAITALL) == 2 && std::string(some) == "ab" &&
           recv(pair.server, some, 2, MSG_PEEK | MSG_WAITALL) == 2 && std::string(some) == "cd";
  });
  REQUIRE(ReceiveExactly(pair.server, 4) == "cdef");
}

TEST_CASE("fork: a reset is told to one of two processes by SO_ERROR") {
  Pair pair = MakePair();
  const linger reset{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
  Pipe closed;
  const pid_t child = Child([&] {
    pair.client.reset();
    if (!closed.Hear() || !WaitFor(pair.server, POLLERR)) return 1;
    return GetOption(pair.server, SOL_SOCKET, SO_ERROR) == ECONNRESET ? 0 : 2;
  });
  pair.client.reset();
  closed.Tell();
  REQUIRE(ExitedWith(Reap(child), 0));
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
  char c;
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
}

TEST_CASE("fork: an urgent byte that a child takes is taken") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "ab"));
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE(SendAll(pair.client, "cd"));
  REQUIRE(WaitFor(pair.server, POLLPRI));
  InChild([&] {
    char c = 0;
    return recv(pair.server, &c, 1, MSG_OOB) == 1 && c == '!' && sockatmark(pair.server) == 0 &&
           ReceiveExactly(pair.server, 2) == "ab" && sockatmark(pair.server) == 1;
  });
  REQUIRE(sockatmark(pair.server) == 1);
  char c;
  REQUIRE_ERRNO(recv(pair.server, &c, 1, MSG_OOB), EINVAL);
  REQUIRE(ReceiveExactly(pair.server, 2) == "cd");
}

TEST_CASE("fork: workers are killed and replaced while clients come") {
  Listener listener = Listen();
  const auto worker = [&] {
    return Fork([&] {
      for (;;) {
        Fd fd(accept(listener.fd, nullptr, nullptr));
        if (fd < 0) return 1;
        const std::string question = ReceiveExactly(fd, 2);
        if (question.size() == 2 && !SendAll(fd, question)) return 2;
      }
    });
  };
  pid_t workers[4];
  for (pid_t& pid : workers) pid = worker();
  std::map<std::string, int> answers;
  for (int client = 0; client < 120; ++client) {
    if (client % 15 == 7) {
      pid_t& unlucky = workers[client / 15 % 4];
      Kill(unlucky);
      unlucky = worker();
    }
    Fd fd = Connected(listener);
    answers[SendAll(fd, "hi") ? ReceiveExactly(fd, 2) : "unsent"] += 1;
  }
  for (const pid_t pid : workers) Kill(pid);
  CAPTURE(answers["unsent"], answers[""]);
  REQUIRE(answers["hi"] == 120);
}

}  // namespace
}  // namespace posix_test
