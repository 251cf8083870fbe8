// connect and accept, blocking and not.
#include <dirent.h>
#include <limits.h>

#include <algorithm>

#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

TEST_CASE("connect: blocking in one thread with the listener") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Listener listener = Listen(family);
  Fd client = TcpSocket(family);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(SendAll(client, "before accept"));
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(ReceiveExactly(server, 13) == "before accept");
  REQUIRE(SendAll(server, "answer"));
  REQUIRE(ReceiveExactly(client, 6) == "answer");
}

// The helper answers, and once at least it does so in less than the moment that it gives to the program.
TEST_CASE("connect: blocking in one thread with the listener takes no time") {
  Listener listener = Listen();
  int fastest = INT_MAX;
  for (int i = 0; i < 20; ++i) {
    const Stopwatch watch;
    const Fd client = Connected(listener);
    fastest = std::min(fastest, watch.ms());
    const Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(server >= 0);
  }
  REQUIRE(fastest <= 1);
}

TEST_CASE("connect: blocking accept right after connect") {
  Listener listener = Listen();
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(SendAll(client, "x"));
  REQUIRE(ReceiveExactly(server, 1) == "x");
}

TEST_CASE("connect: several wait in the backlog and come in order") {
  Listener listener = Listen();
  std::vector<Fd> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(TcpSocket());
    REQUIRE(connect(clients.back(), listener.address.get(), listener.address.length) == 0);
    REQUIRE(SendAll(clients.back(), std::string(1, static_cast<char>('a' + i))));
  }
  std::string all;
  for (int i = 0; i < 10; ++i) {
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(server >= 0);
    all += ReceiveExactly(server, 1);
  }
  REQUIRE(all == "abcdefghij");
  SetNonblocking(listener.fd);
  REQUIRE_ERRNO(accept(listener.fd, nullptr, nullptr), EAGAIN);
}

TEST_CASE("connect: a client that closes before accept is still accepted") {
  Listener listener = Listen();
  {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    REQUIRE(SendAll(client, "gone"));
  }
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(ReceiveToEnd(server) == "gone");
}

TEST_CASE("connect: non-blocking in one thread with the listener") {
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  const int result = connect(client, listener.address.get(), listener.address.length);
  if (result != 0) {
    REQUIRE(errno == EINPROGRESS);
    REQUIRE((PollOne(client, POLLOUT) & (POLLOUT | POLLERR | POLLHUP)) == POLLOUT);
  }
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
  // The kernel says 0 once to the connect that comes after EINPROGRESS, then EISCONN.
  errno = 0;
  const int second = connect(client, listener.address.get(), listener.address.length);
  REQUIRE((second == 0 || errno == EISCONN));
  REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), EISCONN);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(SendAll(client, "ping"));
  REQUIRE(ReceiveExactly(server, 4) == "ping");
  REQUIRE(IsNonblocking(client));
  char c;
  REQUIRE_ERRNO(recv(client, &c, 1, 0), EAGAIN);
}

TEST_CASE("connect: non-blocking and an event loop of its own accepting") {
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  auto acceptor = Async([&] {
    int accepted = 0;
    while (accepted < 30 && WaitFor(listener.fd, POLLIN)) {
      Fd server(accept(listener.fd, nullptr, nullptr));
      if (server < 0) continue;
      if (ReceiveToEnd(server) != "hi") return -1;
      ++accepted;
    }
    return accepted;
  });
  for (int i = 0; i < 30; ++i) {
    Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
    if (connect(client, listener.address.get(), listener.address.length) != 0) {
      REQUIRE(errno == EINPROGRESS);
      REQUIRE(WaitFor(client, POLLOUT));
    }
    REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
    REQUIRE(SendAll(client, "hi"));
  }
  REQUIRE(Get(acceptor) == 30);
}

TEST_CASE("connect: to a closed port blocking is ECONNREFUSED", "[refused]") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Address target = ClosedPort(family);
  Fd client = TcpSocket(family);
  REQUIRE_ERRNO(connect(client, target.get(), target.length), ECONNREFUSED);
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
  Address address;
  REQUIRE_ERRNO(getpeername(client, address.get(), &address.length), ENOTCONN);
}

TEST_CASE("connect: after a refusal the same socket may try again", "[refused]") {
  Address target = ClosedPort(AF_INET);
  Fd client = TcpSocket();
  REQUIRE_ERRNO(connect(client, target.get(), target.length), ECONNREFUSED);
  Listener listener = Listen();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(client, "second"));
  REQUIRE(ReceiveExactly(server, 6) == "second");
}

TEST_CASE("connect: to a closed port non-blocking reports once by SO_ERROR", "[refused]") {
  Address target = ClosedPort(AF_INET);
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  REQUIRE_ERRNO(connect(client, target.get(), target.length), EINPROGRESS);
  const short events = PollOne(client, POLLIN | POLLOUT);
  REQUIRE((events & (POLLOUT | POLLERR | POLLHUP)) == (POLLOUT | POLLERR | POLLHUP));
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
}

TEST_CASE("connect: to a closed port non-blocking reports by the next connect", "[refused]") {
  Address target = ClosedPort(AF_INET);
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  REQUIRE_ERRNO(connect(client, target.get(), target.length), EINPROGRESS);
  REQUIRE(WaitFor(client, POLLERR));
  REQUIRE_ERRNO(connect(client, target.get(), target.length), ECONNREFUSED);
}

TEST_CASE("connect: again, to hear the result, from a server that has answered and gone") {
  Listener listener = Listen();
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  const bool pending = connect(client, listener.address.get(), listener.address.length) != 0;
  if (pending) REQUIRE(errno == EINPROGRESS);
  {
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(SendAll(server, "banner"));
  }
  REQUIRE(WaitFor(client, POLLRDHUP));
  if (pending) REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), EISCONN);
  REQUIRE(ReceiveToEnd(client) == "banner");
}

TEST_CASE("connect: again while connected is EISCONN") {
  Pair pair = MakePair();
  Address peer = PeerOf(pair.client);
  REQUIRE_ERRNO(connect(pair.client, peer.get(), peer.length), EISCONN);
  REQUIRE_ERRNO(connect(pair.server, peer.get(), peer.length), EISCONN);
  REQUIRE_ERRNO(listen(pair.client, 5), EINVAL);
}

TEST_CASE("connect: again while one is under way is EALREADY", "[plain]") {
  // 192.0.2.0/24 is for documentation: no answer comes. Where there is no route at all, there is nothing to
  // see.
  Address target = Loopback(AF_INET, 9);
  REQUIRE(inet_pton(AF_INET, "192.0.2.1", &reinterpret_cast<sockaddr_in&>(target.storage).sin_addr) == 1);
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  if (connect(client, target.get(), target.length) != 0 && errno != EINPROGRESS)
    return sdp::test::Skipped(std::string("no route that swallows packets: ") + strerror(errno));
  if (PollOne(client, POLLOUT, kQuietMs) != 0)
    return sdp::test::Skipped("this host's network answers for 192.0.2.1");
  errno = 0;
  const int again = connect(client, target.get(), target.length);
  if (errno != EALREADY && PollOne(client, POLLOUT, 0) != 0)
    return sdp::test::Skipped("this host's network answers for 192.0.2.1, after a while");
  REQUIRE(again == -1);
  REQUIRE(errno == EALREADY);
  char c = 'x';
  REQUIRE_ERRNO(send(client, &c, 1, MSG_NOSIGNAL), EAGAIN);
  REQUIRE_ERRNO(recv(client, &c, 1, 0), EAGAIN);
}

TEST_CASE("connect: addresses that are wrong", "[plain]") {
  Fd client = TcpSocket();
  Address target = Loopback(AF_INET, 1);
  REQUIRE_ERRNO(connect(client, target.get(), 3), EINVAL);
  Address v6 = Loopback(AF_INET6, 1);
  REQUIRE_ERRNO(connect(client, v6.get(), v6.length), EAFNOSUPPORT);
  REQUIRE_ERRNO(connect(client, nullptr, 16), EFAULT);
}

TEST_CASE("connect: accept without a connection is EAGAIN and poll is quiet") {
  Listener listener = Listen(AF_INET, 8, SOCK_NONBLOCK);
  REQUIRE_ERRNO(accept(listener.fd, nullptr, nullptr), EAGAIN);
  REQUIRE(PollOne(listener.fd, POLLIN | POLLOUT, 0) == 0);
  { Pair pair = ConnectTo(listener); }
  REQUIRE_ERRNO(accept(listener.fd, nullptr, nullptr), EAGAIN);
  REQUIRE(PollOne(listener.fd, POLLIN | POLLOUT, 0) == 0);
}

TEST_CASE("connect: a blocking accept waits for a connection") {
  Listener listener = Listen();
  auto acceptor = Async([&] { return accept(listener.fd, nullptr, nullptr); });
  REQUIRE(StillRunning(acceptor));
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(Get(acceptor));
  REQUIRE(server >= 0);
  REQUIRE(SendAll(server, "welcome"));
  REQUIRE(ReceiveExactly(client, 7) == "welcome");
}

TEST_CASE("connect: several threads blocked in accept share the connections") {
  Listener listener = Listen();
  std::vector<std::future<int>> acceptors;
  for (int i = 0; i < 4; ++i)
    acceptors.push_back(Async([&] { return accept(listener.fd, nullptr, nullptr); }));
  std::vector<Fd> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(TcpSocket());
    REQUIRE(connect(clients.back(), listener.address.get(), listener.address.length) == 0);
  }
  for (auto& acceptor : acceptors) {
    Fd server(Get(acceptor));
    REQUIRE(server >= 0);
  }
}

TEST_CASE("connect: SO_RCVTIMEO bounds accept", "[unconnected]") {
  Listener listener = Listen();
  const timeval tv{0, 50'000};
  REQUIRE(setsockopt(listener.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
  Stopwatch watch;
  REQUIRE_ERRNO(accept(listener.fd, nullptr, nullptr), EAGAIN);
  REQUIRE(watch.ms() >= 45);
  REQUIRE(watch.ms() < kAtOnceMs);
}

TEST_CASE("connect: a client of a listener that closes without accepting sees a reset", "[abort]") {
  Listener listener = Listen();
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  listener.fd.reset();
  REQUIRE(WaitFor(client, POLLIN));
  char c;
  REQUIRE_ERRNO(recv(client, &c, 1, 0), ECONNRESET);
}

TEST_CASE("connect: no connection to a listener after it has closed", "[refused]") {
  Listener listener = Listen();
  { Pair pair = ConnectTo(listener); }
  listener.fd.reset();
  Fd client = TcpSocket();
  REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), ECONNREFUSED);
}

TEST_CASE("connect: shutdown of a listener ends a blocked accept", "[refused]") {
  Listener listener = Listen();
  auto acceptor = Async([&] { return accept(listener.fd, nullptr, nullptr) == -1 ? errno : 0; });
  REQUIRE(StillRunning(acceptor));
  REQUIRE(shutdown(listener.fd, SHUT_RD) == 0);
  REQUIRE(Get(acceptor) == EINVAL);
}

TEST_CASE("connect: listen without bind takes a port of the kernel's choice") {
  Fd fd = TcpSocket();
  REQUIRE(listen(fd, 8) == 0);
  Address target = Loopback(AF_INET, LocalOf(fd).port());
  Fd client = TcpSocket();
  REQUIRE(connect(client, target.get(), target.length) == 0);
  REQUIRE(WaitFor(fd, POLLIN));
  Fd server(accept(fd, nullptr, nullptr));
  REQUIRE(server >= 0);
}

TEST_CASE("connect: listen twice changes the backlog") {
  Listener listener = Listen();
  REQUIRE(listen(listener.fd, 4) == 0);
  Pair pair = ConnectTo(listener);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
}

TEST_CASE("connect: a client that never accepts anything in time does not disturb others") {
  Listener busy = Listen();
  std::vector<Fd> waiting;
  for (int i = 0; i < 5; ++i) {
    waiting.push_back(TcpSocket());
    REQUIRE(connect(waiting.back(), busy.address.get(), busy.address.length) == 0);
  }
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "free"));
  REQUIRE(ReceiveExactly(pair.server, 4) == "free");
}

TEST_CASE("connect: clients that nobody accepts cost the server no more than its backlog", "[refused]") {
  constexpr int kBacklog = 8;
  int where[2], tell[2], go_on[2];
  for (int* ends : {where, tell, go_on}) REQUIRE(pipe(ends) == 0);
  // Before there is a listener: one that processes share is another case.
  const pid_t child = Child([&] {
    Address address;
    if (read(where[0], &address, sizeof address) != sizeof address) return 1;
    std::vector<Fd> clients;
    for (int i = 0; i < 60; ++i) {
      clients.push_back(TcpSocket(AF_INET, SOCK_NONBLOCK));
      connect(clients.back(), address.get(), address.length);
    }
    // Which of them are first is not said.
    const auto count = [&](int ms) {
      return std::count_if(clients.begin(), clients.end(),
                           [&](int client) { return WaitFor(client, POLLOUT, ms); });
    };
    Eventually([&] { return count(0) >= kBacklog; });
    char connected = static_cast<char>(count(10));
    return write(tell[1], &connected, 1) == 1 && read(go_on[0], &connected, 1) == 1 ? 0 : 2;
  });
  Listener listener = Listen(AF_INET, kBacklog);
  const auto open_descriptors = [] {
    int count = 0;
    DIR* const directory = opendir("/proc/self/fd");
    while (readdir(directory) != nullptr) ++count;
    closedir(directory);
    return count;
  };
  const int before = open_descriptors();
  REQUIRE(write(where[1], &listener.address, sizeof listener.address) == sizeof listener.address);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  char connected = 0;
  REQUIRE(WaitFor(tell[0], POLLIN, 2 * kPatienceMs));
  REQUIRE(read(tell[0], &connected, 1) == 1);
  REQUIRE(connected >= kBacklog);
  REQUIRE(open_descriptors() - before < kBacklog + 12);
  REQUIRE(write(go_on[1], "x", 1) == 1);
  REQUIRE(ExitedWith(Reap(child), 0));
}

TEST_CASE(
    "connect: the first connect after a non-blocking one has finished succeeds, the next says EISCONN") {
  Listener listener = Listen();
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  if (connect(client, listener.address.get(), listener.address.length) != 0) {
    REQUIRE(errno == EINPROGRESS);
    REQUIRE(WaitFor(client, POLLOUT));
    REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  }
  REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), EISCONN);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE_ERRNO(connect(server, listener.address.get(), listener.address.length), EISCONN);
}

}  // namespace
}  // namespace posix_test
