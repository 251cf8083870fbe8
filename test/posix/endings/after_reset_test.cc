// The first call behind a reset that has come, and that nobody has looked for.
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

enum class Peer { kLeavesUnread, kLingersNot, kLingersNotBehindData };

// The server's end of a connection that its peer has reset. Nothing is asked of it here: poll would look.
Pair ResetPair(Peer peer) {
  Pair pair = MakePair();
  if (peer == Peer::kLingersNotBehindData) REQUIRE(SendAll(pair.client, "hello"));
  if (peer == Peer::kLeavesUnread) {
    REQUIRE(SendAll(pair.server, "unread"));
    REQUIRE(WaitFor(pair.client, POLLIN));
  } else {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  }
  pair.client.reset();
  poll(nullptr, 0, 20);
  return pair;
}

Peer AnyPeer() { return static_cast<Peer>(GENERATE(0, 1, 2)); }

int StateOf(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  REQUIRE(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
  return info.tcpi_state;
}

TEST_CASE("after a reset: shutdown says that there is no connection, and leaves the error") {
  const int how = GENERATE(int{SHUT_RD}, int{SHUT_WR}, int{SHUT_RDWR});
  const Peer peer = AnyPeer();
  Pair pair = ResetPair(peer);
  REQUIRE_ERRNO(shutdown(pair.server, how), ENOTCONN);
  REQUIRE_ERRNO(shutdown(pair.server, SHUT_WR), ENOTCONN);
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), ECONNRESET);
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
  char room[9];
  REQUIRE(recv(pair.server, room, sizeof room, 0) == (peer == Peer::kLingersNotBehindData ? 5 : 0));
  REQUIRE(recv(pair.server, room, sizeof room, 0) == 0);
}

TEST_CASE("after a reset: SO_ERROR tells it before what is unread, once") {
  Pair pair = ResetPair(AnyPeer());
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == ECONNRESET);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
}

TEST_CASE("after a reset: SO_ERROR without room to tell it keeps it") {
  Pair pair = ResetPair(Peer::kLingersNot);
  int error = 0;
  socklen_t too_long = 0x80000000;
  REQUIRE_ERRNO(getsockopt(pair.server, SOL_SOCKET, SO_ERROR, &error, &too_long), EINVAL);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == ECONNRESET);
}

TEST_CASE("after a reset: connect and listen leave the error") {
  Pair pair = ResetPair(AnyPeer());
  Address any = Loopback(AF_INET, 9);
  REQUIRE_ERRNO(connect(pair.server, any.get(), any.length), EISCONN);
  REQUIRE_ERRNO(listen(pair.server, 5), EINVAL);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == ECONNRESET);
}

TEST_CASE("after a reset: a send of nothing") {
  const Peer peer = AnyPeer();
  Pair pair = ResetPair(peer);
  volatile size_t nothing = 0;
  char room[9];
  REQUIRE_ERRNO(send(pair.server, room, nothing, MSG_NOSIGNAL), ECONNRESET);
  REQUIRE(recv(pair.server, room, sizeof room, 0) == (peer == Peer::kLingersNotBehindData ? 5 : 0));
}

TEST_CASE("after a reset: recvmmsg tells it before what is unread, whether or not it has room") {
  const bool has_room = GENERATE(false, true);
  const Peer peer = AnyPeer();
  Pair pair = ResetPair(peer);
  char room[9];
  iovec piece{room, sizeof room};
  mmsghdr messages[2]{};
  for (mmsghdr& message : messages)
    message.msg_hdr = {.msg_name = nullptr,
                       .msg_namelen = 0,
                       .msg_iov = &piece,
                       .msg_iovlen = 1,
                       .msg_control = nullptr,
                       .msg_controllen = 0,
                       .msg_flags = 0};
  REQUIRE_ERRNO(recvmmsg(pair.server, has_room ? messages : nullptr, has_room ? 2 : 0, 0, nullptr),
                ECONNRESET);
  REQUIRE(recv(pair.server, room, sizeof room, 0) == (peer == Peer::kLingersNotBehindData ? 5 : 0));
  REQUIRE(recvmmsg(pair.server, messages, 2, 0, nullptr) == 2);
  REQUIRE(recvmmsg(pair.server, nullptr, 0, 0, nullptr) == 0);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
}

TEST_CASE("after a reset: of a stream that had ended here") {
  const int bytes = GENERATE(0, 1);
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.server, "unread"));
  REQUIRE(shutdown(pair.server, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.client, POLLRDHUP));
  pair.client.reset();
  poll(nullptr, 0, 20);
  REQUIRE_ERRNO(send(pair.server, "x", static_cast<size_t>(bytes), MSG_NOSIGNAL), ECONNRESET);
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
  char room[9];
  REQUIRE(recv(pair.server, room, sizeof room, 0) == 0);
}

TEST_CASE("after a reset: a name can be had again") {
  Pair pair = ResetPair(AnyPeer());
  Address any = Any(AF_INET);
  REQUIRE(bind(pair.server, any.get(), any.length) == 0);
}

TEST_CASE("after a reset: what comes with what is sent is looked at behind that") {
  Pair pair = ResetPair(Peer::kLeavesUnread);
  char byte;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  *CMSG_FIRSTHDR(&message) = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = 9999};
  REQUIRE_ERRNO(sendmsg(pair.server, &message, MSG_NOSIGNAL), ECONNRESET);
  REQUIRE_ERRNO(sendmsg(pair.server, &message, MSG_NOSIGNAL), EPIPE);
  message.msg_controllen = size_t{1} << 32;
  REQUIRE_ERRNO(sendmsg(pair.server, &message, MSG_NOSIGNAL), ENOBUFS);
}

// --- An end that has come, and is no reset

constexpr short kEnd = POLLIN | POLLOUT | POLLRDHUP;

TEST_CASE("a program whose connection's peer has closed", "[.inherited-close-wait]") {
  const int fd = InheritedNumber();
  REQUIRE(StateOf(fd) == TCP_CLOSE_WAIT);
  REQUIRE(PollOne(fd, kEnd | POLLERR) == kEnd);
  REQUIRE(StateOf(fd) == TCP_CLOSE_WAIT);
  REQUIRE(shutdown(fd, SHUT_WR) == 0);
  REQUIRE(Eventually([&] { return StateOf(fd) == TCP_CLOSE; }));
  REQUIRE((PollOne(fd, kEnd) & POLLHUP) != 0);
}

TEST_CASE("a program whose connection is over", "[.inherited-over]") {
  const int fd = InheritedNumber();
  REQUIRE((PollOne(fd, kEnd) & POLLHUP) != 0);
  REQUIRE(StateOf(fd) == TCP_CLOSE);
  REQUIRE_ERRNO(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
}

TEST_CASE(
    "after the end: the state is CLOSE_WAIT as long as nothing is said to it, here and in another program") {
  const bool answered = GENERATE(false, true);
  const RemoteClient client = ServeClient([](int) { return 0; });  // which is gone behind its close
  REQUIRE(ExitedWith(Reap(client.pid), 0));
  const int fd = client.server;
  REQUIRE(WaitFor(fd, POLLRDHUP));
  for (int i = 0; i < 3; ++i) {
    REQUIRE(StateOf(fd) == TCP_CLOSE_WAIT);
    REQUIRE(PollOne(fd, kEnd) == kEnd);
  }
  if (answered) {
    REQUIRE(shutdown(fd, SHUT_WR) == 0);
    REQUIRE(Eventually([&] { return StateOf(fd) == TCP_CLOSE; }));
  }
  const pid_t pid = Fork([&] {
    Silence();
    Program program(answered ? "[.inherited-over]" : "[.inherited-close-wait]", fd);
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    return 3;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("after the end: a peer that has gone takes one more send, and the next one is EPIPE") {
  Pair pair = MakePair();
  const Address peer = PeerOf(pair.server);
  pair.client.reset();
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  if (GENERATE(false, true)) REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
  Address name;
  REQUIRE(getpeername(pair.server, name.get(), &name.length) == 0);
  REQUIRE(name.ToString() == peer.ToString());
  volatile size_t nothing = 0;
  REQUIRE(send(pair.server, "x", nothing, MSG_NOSIGNAL) == 0);
  REQUIRE(send(pair.server, "x", 1, MSG_NOSIGNAL) == 1);
  REQUIRE(WaitFor(pair.server, POLLERR));
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
  char c;
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
  REQUIRE_ERRNO(getpeername(pair.server, name.get(), &name.length), ENOTCONN);
}

// What the kernel itself says of the descriptor.
bool LinkIsOver(int fd) {
  pollfd one{.fd = fd, .events = 0, .revents = 0};
  const timespec at_once{};
  return syscall(SYS_ppoll, &one, 1, &at_once, nullptr, 0) == 1 && (one.revents & POLLERR) != 0;
}

TEST_CASE("after the end: who goes on sending small pieces learns of a reset that the kernel knows of") {
  constexpr int kMost = 256;  // sends; TCP takes none
  Listener listener = Listen();
  for (int i = 0; i < 20; ++i) {
    Pair pair = ConnectTo(listener);
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    pair.server.reset();
    const Stopwatch watch;
    ssize_t sent = 0;
    while (sent >= 0 && !LinkIsOver(pair.client) && watch.ms() < kPatienceMs)
      sent = send(pair.client, "more", 4, MSG_NOSIGNAL);
    int taken = 0;
    while (taken <= kMost && send(pair.client, "more", 4, MSG_NOSIGNAL) == 4) ++taken;
    const int error = errno;
    REQUIRE(taken <= kMost);
    REQUIRE(error == EPIPE);
  }
}

TEST_CASE("after a reset: whose peer's name is asked for") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "unread"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  pair.server.reset();
  poll(nullptr, 0, kQuietMs);  // whoever waited for it would look
  Address name;
  REQUIRE_ERRNO(getpeername(pair.client, name.get(), &name.length), ENOTCONN);
}

TEST_CASE("after a reset: an urgent byte that nobody has read resets the connection, too") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "u", 1, MSG_OOB) == 1);
  REQUIRE(WaitFor(pair.server, POLLPRI));
  pair.server.reset();
  REQUIRE(WaitFor(pair.client, POLLERR));
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_ERROR) == ECONNRESET);
}

}  // namespace
}  // namespace posix_test
