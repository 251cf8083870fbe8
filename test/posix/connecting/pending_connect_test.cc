// What is done with a socket whose connect is under way.
#include <netinet/tcp.h>

#include <vector>

#include "test/posix/processes.h"
#include "test/posix/twins.h"

namespace posix_test {
namespace {

// A listener without room for another client: TCP's handshake with one is under way for as long.
struct Occupied {
  Listener listener = Listen(AF_INET, 0);
  Fd first = Connected(listener);
  // Non-blocking, and not connected.
  Fd Pending() {
    Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
    REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), EINPROGRESS);
    REQUIRE(PollOne(client, POLLOUT, kQuietMs) == 0);
    return client;
  }
  Fd Accept() {
    REQUIRE(WaitFor(listener.fd, POLLIN));
    return Fd(accept(listener.fd, nullptr, nullptr));
  }
};

bool Asks(int fd) {
  return WaitFor(fd, POLLOUT) && GetOption(fd, SOL_SOCKET, SO_ERROR) == 0 && SendAll(fd, "question");
}

TEST_CASE("pending: a child that is forked at once has the connection") {
  const bool parent_stays = GENERATE(false, true);
  Listener listener = Listen();
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), EINPROGRESS);
  const pid_t pid = Fork([&] {
    listener.fd.reset();
    return Asks(client) && ReceiveExactly(client, 6) == "answer" ? 0 : 1;
  });
  if (!parent_stays) client.reset();
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(ReceiveExactly(server, 8) == "question");
  REQUIRE(SendAll(server, "answer"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("pending: a child that has the socket while nobody answers is in nobody's way") {
  Occupied occupied;
  Fd client = occupied.Pending();
  const pid_t pid = Fork([&] {
    Address peer;
    if (getpeername(client, peer.get(), &peer.length) != -1 || errno != ENOTCONN) return 1;
    char c;
    return send(client, "stray", 5, MSG_NOSIGNAL) == -1 && recv(client, &c, 1, 0) == -1 ? 0 : 2;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
  occupied.Accept().reset();
  REQUIRE(Asks(client));
  REQUIRE(ReceiveExactly(occupied.Accept(), 8) == "question");
}

TEST_CASE("pending: goes on under another number") {
  const bool by_dup2 = GENERATE(false, true);
  Occupied occupied;
  Fd client = occupied.Pending();
  Fd other(dup(client));
  if (by_dup2) {
    const int null = open("/dev/null", O_RDONLY);
    REQUIRE(dup2(null, client) == client);
    close(null);
  }
  client.reset();
  REQUIRE(PollOne(other, POLLOUT, kQuietMs) == 0);
  occupied.Accept().reset();
  REQUIRE(Asks(other));
  REQUIRE(ReceiveExactly(occupied.Accept(), 8) == "question");
}

TEST_CASE("pending: begun by a duplicate of a fresh socket that is gone then") {
  const bool by_dup2 = GENERATE(false, true);
  Listener listener = Listen();
  const Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  Fd other(dup(client));
  REQUIRE((connect(other, listener.address.get(), listener.address.length) == 0 || errno == EINPROGRESS));
  if (by_dup2) {
    const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    REQUIRE(dup2(null, other) == other);
  } else {
    other.reset();
  }
  REQUIRE(WaitFor(client, POLLOUT));
  const Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(client, "goes on"));
  REQUIRE(ReceiveExactly(server, 7) == "goes on");
}

TEST_CASE("pending: closed at once, it is one that has ended") {
  const bool process_ends = GENERATE(false, true);
  Listener listener = Listen();
  for (int round = 0; round < 20; ++round) {
    const auto begin_and_close = [&] {
      Fd client(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      return connect(client, listener.address.get(), listener.address.length) == 0 || errno == EINPROGRESS
                 ? 0
                 : 1;
    };
    if (process_ends) {
      REQUIRE(ExitedWith(Reap(Fork(begin_and_close)), 0));
    } else {
      REQUIRE(begin_and_close() == 0);
    }
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(server >= 0);
    REQUIRE(WaitFor(server, POLLRDHUP));
    REQUIRE(PollOne(server, POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
    REQUIRE(ReceiveToEnd(server).empty());
    REQUIRE(GetOption(server, SOL_SOCKET, SO_ERROR) == 0);
    REQUIRE(SendAll(server, "to nobody"));
  }
}

TEST_CASE("pending: calls that block wait for the connection") {
  Occupied occupied;
  Fd client = occupied.Pending();
  char c;
  REQUIRE_ERRNO(recv(client, &c, 1, 0), EAGAIN);
  REQUIRE_ERRNO(send(client, "x", 1, 0), EAGAIN);
  SetNonblocking(client, false);
  REQUIRE_ERRNO(recv(client, &c, 1, MSG_DONTWAIT), EAGAIN);
  auto reader = Async([&] {
    char answer[6];
    return recv(client, answer, sizeof answer, MSG_WAITALL);
  });
  auto writer = Async([&] { return send(client, "question", 8, MSG_NOSIGNAL); });
  occupied.Accept().reset();
  Fd server = occupied.Accept();
  REQUIRE(ReceiveExactly(server, 8) == "question");
  REQUIRE(SendAll(server, "answer"));
  REQUIRE(Get(writer) == 8);
  REQUIRE(Get(reader) == 6);
}

TEST_CASE("pending: calls that block wait no longer than they may") {
  Occupied occupied;
  Fd client = occupied.Pending();
  SetNonblocking(client, false);
  SetTimeout(client, SO_RCVTIMEO, 50);
  SetTimeout(client, SO_SNDTIMEO, 50);
  char c;
  const Stopwatch watch;
  REQUIRE_ERRNO(recv(client, &c, 1, 0), EAGAIN);
  REQUIRE_ERRNO(send(client, "x", 1, MSG_NOSIGNAL), EAGAIN);
  REQUIRE(watch.ms() >= 100);
}

TEST_CASE("pending: shutdown ends it", "[refused]") {
  const bool blocking = GENERATE(false, true);
  const int how = GENERATE(int{SHUT_RD}, int{SHUT_WR}, int{SHUT_RDWR});
  Occupied occupied;
  if (!blocking) {
    Fd client = occupied.Pending();
    REQUIRE(shutdown(client, how) == 0);
    REQUIRE((PollOne(client, POLLOUT) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
    REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == ECONNRESET);
    return;
  }
  Fd client = TcpSocket();
  auto connecting = Async([&] {
    return connect(client, occupied.listener.address.get(), occupied.listener.address.length) == 0 ? 0
                                                                                                   : errno;
  });
  REQUIRE(Eventually([&] {
    tcp_info info{};
    socklen_t length = sizeof info;
    return getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_state == TCP_SYN_SENT;
  }));
  REQUIRE(shutdown(client, how) == 0);
  REQUIRE(Get(connecting) == ECONNRESET);
}

// The kernel refuses at once what the library, which asks the port mapper first, can only tell later.
TEST_CASE("pending: between two names that have a connection is an error", "[plain]") {
  const bool turns_blocking = GENERATE(false, true);
  BareFd listening_socket = BareSocket(AF_INET);
  const int one = 1;
  REQUIRE(syscall(SYS_setsockopt, listening_socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
  BarePair pair = BareConnection(AF_INET, std::move(listening_socket));
  pair.listener = BareFd();
  Address from = LocalOf(pair.server.get()), to = LocalOf(pair.client.get());
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  SetOption(client, SOL_SOCKET, SO_REUSEADDR, 1);
  REQUIRE(bind(client, from.get(), from.length) == 0);
  REQUIRE(connect(client, to.get(), to.length) == -1);
  if (errno == EINPROGRESS) {
    if (turns_blocking) SetNonblocking(client, false);
    REQUIRE((PollOne(client, POLLOUT) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
    REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == EADDRNOTAVAIL);
  } else {
    REQUIRE(errno == EADDRNOTAVAIL);
  }
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
}

TEST_CASE("pending: one more than the backlog says gets in, and a backlog has no sign") {
  for (const int backlog : {-1, 1, 3}) {
    CAPTURE(backlog);
    Listener listener = Listen(AF_INET, backlog);
    const int room = backlog < 0 ? 8 : backlog + 1;
    const Stopwatch watch;
    std::vector<Fd> clients;
    for (int i = 0; i < room; ++i) clients.push_back(Connected(listener));
    for (int i = 0; i < room; ++i) REQUIRE(Fd(accept(listener.fd, nullptr, nullptr)) >= 0);
    REQUIRE(watch.ms() <
            3500);  // the library's patience with a peer that does not answer is 4 s in this test
  }
}

TEST_CASE("pending: an address of another family is the kernel's to refuse", "[unconnected]") {
  Listener listener = Listen();
  Fd client = TcpSocket(AF_INET6);
  REQUIRE_ERRNO(connect(client, listener.address.get(), sizeof(sockaddr_in)), EINVAL);
  sockaddr_storage longer = listener.address.storage;
  REQUIRE_ERRNO(connect(client, reinterpret_cast<sockaddr*>(&longer), sizeof(sockaddr_in6)), EAFNOSUPPORT);
}

TEST_CASE("pending: from an address of one version to one of the other", "[plain]") {
  const bool mapped_first = GENERATE(false, true);
  Address plain = Loopback(AF_INET6, 0), mapped = plain;
  REQUIRE(inet_pton(AF_INET6, "::ffff:127.0.0.1",
                    &reinterpret_cast<sockaddr_in6&>(mapped.storage).sin6_addr) == 1);
  Address from = mapped_first ? mapped : plain, to = mapped_first ? plain : mapped;
  reinterpret_cast<sockaddr_in6&>(to.storage).sin6_port = htons(ClosedPort(AF_INET6).port());
  Fd client = TcpSocket(AF_INET6);
  REQUIRE(bind(client, from.get(), from.length) == 0);
  REQUIRE(connect(client, to.get(), to.length) == -1);
  REQUIRE((errno == ENETUNREACH || errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL || errno == EINVAL));
}

}  // namespace
}  // namespace posix_test
