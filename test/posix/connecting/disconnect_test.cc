// connect() in its rarer uses: AF_UNSPEC, which takes a socket's peer away, and a socket that is its own
// peer.
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include <atomic>

#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

int Disconnect(int fd) {
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  return connect(fd, &nobody, sizeof nobody);
}

TEST_CASE("disconnect: the peer is reset, and the socket may connect again", "[abort]") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  REQUIRE(SendAll(pair.client, "one"));
  REQUIRE(ReceiveExactly(pair.server, 3) == "one");
  REQUIRE(Disconnect(pair.client) == 0);
  REQUIRE(WaitFor(pair.server, POLLIN | POLLERR | POLLHUP));
  char c;
  REQUIRE_ERRNO(recv(pair.server, &c, 1, 0), ECONNRESET);
  sockaddr_storage name;
  socklen_t length = sizeof name;
  REQUIRE_ERRNO(getpeername(pair.client, reinterpret_cast<sockaddr*>(&name), &length), ENOTCONN);
  REQUIRE(PollOne(pair.client, POLLIN | POLLOUT, 0) == (POLLOUT | POLLERR | POLLHUP));
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_ERROR) == ECONNRESET);  // of one's own making, told once
  REQUIRE_ERRNO(recv(pair.client, &c, 1, MSG_DONTWAIT), ENOTCONN);
  REQUIRE_ERRNO(send(pair.client, &c, 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE(PollOne(pair.client, POLLIN | POLLOUT, 0) == (POLLOUT | POLLHUP));
  REQUIRE(Disconnect(pair.client) == 0);

  REQUIRE(connect(pair.client, listener.address.get(), listener.address.length) == 0);
  Fd again(accept(listener.fd, nullptr, nullptr));
  REQUIRE(again >= 0);
  REQUIRE(SendAll(pair.client, "two"));
  REQUIRE(ReceiveExactly(again, 3) == "two");
  REQUIRE(SendAll(again, "three"));
  REQUIRE(ReceiveExactly(pair.client, 5) == "three");
}

TEST_CASE("disconnect: the congestion control is what it was, for the kernel too", "[abort]") {
  const auto of_kernel = [](int fd) {
    char name[32] = {};
    socklen_t length = sizeof name - 1;
    REQUIRE(syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
    return std::string(name);
  };
  Listener listener = Listen();
  const std::string before = of_kernel(TcpSocket());
  Pair pair = ConnectTo(listener);
  REQUIRE(Disconnect(pair.client) == 0);
  REQUIRE(of_kernel(pair.client) == before);
}

TEST_CASE("disconnect: what waited to be read is gone, and epoll hears of the next connection", "[abort]") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.client, &event) == 0);
  REQUIRE(SendAll(pair.server, "unread"));
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(Disconnect(pair.client) == 0);
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 1);
  REQUIRE((event.events & EPOLLHUP) != 0);
  REQUIRE(connect(pair.client, listener.address.get(), listener.address.length) == 0);
  Fd again(accept(listener.fd, nullptr, nullptr));
  REQUIRE(epoll_wait(ep, &event, 1, kQuietMs) == 0);
  REQUIRE(SendAll(again, "news"));
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.events == EPOLLIN);
  REQUIRE(ReceiveExactly(pair.client, 4) == "news");
}

TEST_CASE("disconnect: edge-triggered epoll hears of it", "[abort]") {
  const uint32_t wanted = GENERATE(uint32_t{EPOLLIN}, uint32_t{EPOLLRDHUP}, uint32_t{EPOLLIN | EPOLLOUT});
  Pair pair = MakePair();
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = wanted | EPOLLET, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.client, &event) == 0);
  REQUIRE(epoll_wait(ep, &event, 1, 0) == ((wanted & EPOLLOUT) != 0 ? 1 : 0));
  REQUIRE(Disconnect(pair.client) == 0);
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE((event.events & EPOLLHUP) != 0);
}

// Which error depends on the kernel; newer ones know a sleeper whose peer was taken away.
TEST_CASE("disconnect: who sleeps in a receive is told of no end", "[abort]") {
  Pair pair = MakePair();
  std::atomic<pid_t> tid{0};
  auto sleeper = Async([&, fd = pair.client.get()] {
    tid = gettid();
    char c;
    return recv(fd, &c, 1, 0) == -1 ? errno : 0;
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(Disconnect(pair.client) == 0);
  const int error = Get(sleeper);
  REQUIRE((error == EPIPE || error == ECONNRESET));
  char c;
  REQUIRE_ERRNO(recv(pair.server, &c, 1, 0), ECONNRESET);
}

TEST_CASE("disconnect: a listener listens no more", "[refused]") {
  Listener listener = Listen();
  REQUIRE(Disconnect(listener.fd) == 0);
  REQUIRE(GetOption(listener.fd, SOL_SOCKET, SO_ACCEPTCONN) == 0);
  Fd client = TcpSocket();
  REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), ECONNREFUSED);
}

TEST_CASE("disconnect: a socket that never was connected, and a connect under way", "[plain]") {
  Fd fresh = TcpSocket();
  REQUIRE(Disconnect(fresh) == 0);
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  Address target = Loopback(AF_INET, 9);
  REQUIRE(inet_pton(AF_INET, "192.0.2.1", &reinterpret_cast<sockaddr_in&>(target.storage).sin_addr) == 1);
  if (connect(client, target.get(), target.length) == 0 || errno != EINPROGRESS)
    return sdp::test::SkippedInPart(std::string("no route that swallows packets: ") + strerror(errno));
  REQUIRE(Disconnect(client) == 0);
  Listener listener = Listen();
  SetNonblocking(client, false);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(client, "there"));
  REQUIRE(ReceiveExactly(server, 5) == "there");
}

TEST_CASE("disconnect: a socket that was accepted listens", "[abort]") {
  const bool bound = GENERATE(false, true);
  Pair pair = MakePair();
  REQUIRE(Disconnect(pair.server) == 0);
  if (bound) {
    Address address = Loopback(AF_INET);
    REQUIRE(bind(pair.server, address.get(), address.length) == 0);
  }
  REQUIRE(listen(pair.server, 8) == 0);
  Listener listener{std::move(pair.server), {}};
  listener.address = LocalOf(listener.fd);
  Address target = Loopback(AF_INET, listener.address.port());
  Fd client = TcpSocket();
  REQUIRE(connect(client, target.get(), target.length) == 0);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(client, "there"));
  REQUIRE(ReceiveExactly(server, 5) == "there");
  REQUIRE(LocalOf(server).ToString() == target.ToString());
  REQUIRE(PeerOf(client).ToString() == target.ToString());
}

TEST_CASE("connect: a socket to its own name", "[plain]") {
  Fd self = TcpSocket();
  Address name = Loopback(AF_INET);
  REQUIRE(bind(self, name.get(), name.length) == 0);
  name = LocalOf(self);
  REQUIRE(connect(self, name.get(), name.length) == 0);
  REQUIRE(LocalOf(self).ToString() == PeerOf(self).ToString());
  REQUIRE(SendAll(self, "soliloquy"));
  REQUIRE(ReceiveExactly(self, 9) == "soliloquy");
  REQUIRE(shutdown(self, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(self).empty());
}

}  // namespace
}  // namespace posix_test
