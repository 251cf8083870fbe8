// A peer whose host is gone, or out of reach: nothing that is sent to it is answered, and nobody says so.
// What finds that out is keepalive, or TCP_USER_TIMEOUT. It is simulated by a filter that drops whatever
// comes for one end, before TCP sees it.
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include "test/posix/links.h"
#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

constexpr int kUserTimeoutMs = 600;
// Set after connect; before, it leads to a TCP link.
constexpr char kNoTimers[] = "on a local link the kernel sees no bytes (docs/differences.md)";

void BecomeDeaf(int fd) {
  sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{.len = 1, .filter = nothing};
  REQUIRE(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
}

// Its next packet is answered with a reset: it need not wait for a peer that has given it up.
void HearAgain(int fd) {
  const int none = 0;
  REQUIRE(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none) == 0);
}

// Found dead after two seconds.
void ProbeSoon(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

void Exchange(Pair& pair) {
  REQUIRE(SendAll(pair.client, "to"));
  REQUIRE(ReceiveExactly(pair.server, 2) == "to");
  REQUIRE(SendAll(pair.server, "fro"));
  REQUIRE(ReceiveExactly(pair.client, 3) == "fro");
}

constexpr short kAll = POLLIN | POLLOUT | POLLRDHUP | POLLPRI;
constexpr short kOver = POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP;

// What is left of a connection when the error has been told.
void RequireOver(int fd) {
  char c;
  REQUIRE(GetOption(fd, SOL_SOCKET, SO_ERROR) == 0);
  REQUIRE(recv(fd, &c, 1, 0) == 0);
  REQUIRE_ERRNO(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE(PollOne(fd, kAll, 0) == (kOver & ~POLLERR));
  Address address;
  REQUIRE_ERRNO(getpeername(fd, address.get(), &address.length), ENOTCONN);
}

TEST_CASE("dead peer: keepalive ends a receive that sleeps") {
  Pair pair = MakePair(GENERATE(AF_INET, AF_INET6));
  Exchange(pair);
  const Stopwatch watch;
  ProbeSoon(pair.client);
  BecomeDeaf(pair.server);
  auto receiver = Async([&] {
    char c;
    return recv(pair.client, &c, 1, 0) == -1 ? errno : 0;
  });
  REQUIRE((StillRunning(receiver, 500) || watch.ms() > 1000));
  REQUIRE(Get(receiver) == ETIMEDOUT);
  RequireOver(pair.client);
  HearAgain(pair.server);
}

TEST_CASE("dead peer: keepalive ends a poll and an epoll that sleep, and SO_ERROR tells why") {
  Pair polled = MakePair(), watched = MakePair();
  for (Pair* pair : {&polled, &watched}) {
    Exchange(*pair);
    ProbeSoon(pair->client);
    BecomeDeaf(pair->server);
  }
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, watched.client, &event) == 0);
  auto poller = Async([&] { return PollOne(polled.client, POLLIN | POLLRDHUP); });
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.events == (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP));
  REQUIRE(Get(poller) == (POLLIN | POLLRDHUP | POLLERR | POLLHUP));
  for (Pair* pair : {&polled, &watched}) {
    REQUIRE(PollOne(pair->client, kAll, 0) == kOver);
    REQUIRE(GetOption(pair->client, SOL_SOCKET, SO_ERROR) == ETIMEDOUT);
    RequireOver(pair->client);
    HearAgain(pair->server);
  }
}

TEST_CASE("dead peer: keepalive of a listener's connections, and the next send is told") {
  Listener listener = Listen();
  ProbeSoon(listener.fd);
  Pair pair = ConnectTo(listener);
  Exchange(pair);
  REQUIRE(PollOne(pair.server, POLLOUT, 0) == POLLOUT);
  BecomeDeaf(pair.client);
  REQUIRE((PollOne(pair.server, POLLIN) & POLLERR) != 0);
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), ETIMEDOUT);
  RequireOver(pair.server);
  HearAgain(pair.client);
}

TEST_CASE("dead peer: keepalive of a half-closed connection, closed by either end") {
  const bool by_client = GENERATE(true, false);
  Pair pair = MakePair();
  Exchange(pair);
  REQUIRE(shutdown(by_client ? pair.client : pair.server, SHUT_WR) == 0);
  if (by_client) {
    REQUIRE(ReceiveToEnd(pair.server).empty());
  } else {
    REQUIRE(ReceiveToEnd(pair.client).empty());
  }
  ProbeSoon(pair.client);
  BecomeDeaf(pair.server);
  REQUIRE(Eventually([&] { return (PollOne(pair.client, 0, 0) & POLLERR) != 0; }));
  REQUIRE(GetOption(pair.client, SOL_SOCKET, SO_ERROR) == ETIMEDOUT);
  RequireOver(pair.client);
  HearAgain(pair.server);
}

TEST_CASE("dead peer: TCP_USER_TIMEOUT ends a connection whose bytes nobody acknowledges") {
  if (OnLocalLinks()) return sdp::test::Skipped(kNoTimers);
  Pair pair = MakePair();
  Exchange(pair);
  SetOption(pair.client, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  BecomeDeaf(pair.server);
  // Nothing is wrong as long as nothing is unacknowledged.
  REQUIRE(PollOne(pair.client, POLLIN, 2 * kUserTimeoutMs) == 0);
  const Stopwatch watch;
  REQUIRE(send(pair.client, "x", 1, 0) == 1);
  char c;
  REQUIRE_ERRNO(recv(pair.client, &c, 1, 0), ETIMEDOUT);
  REQUIRE(watch.ms() >= kUserTimeoutMs / 2);
  REQUIRE(watch.ms() < kAtOnceMs + kUserTimeoutMs);
  RequireOver(pair.client);
  HearAgain(pair.server);
}

TEST_CASE("dead peer: TCP_USER_TIMEOUT that was set before connect, or on the listener") {
  const bool on_listener = GENERATE(true, false);
  Listener listener = Listen();
  if (on_listener) SetOption(listener.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  Pair pair;
  pair.client = TcpSocket();
  if (!on_listener) SetOption(pair.client, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  REQUIRE(connect(pair.client, listener.address.get(), listener.address.length) == 0);
  pair.server.reset(accept(listener.fd, nullptr, nullptr));
  Exchange(pair);
  const int alive = on_listener ? pair.server : pair.client;
  const int deaf = on_listener ? pair.client : pair.server;
  BecomeDeaf(deaf);
  REQUIRE(send(alive, "x", 1, 0) == 1);
  char c;
  REQUIRE_ERRNO(recv(alive, &c, 1, 0), ETIMEDOUT);
  RequireOver(alive);
  HearAgain(deaf);
}

TEST_CASE("dead peer: TCP_USER_TIMEOUT ends a sender that sleeps because nothing is taken any more") {
  if (OnLocalLinks()) return sdp::test::Skipped(kNoTimers);
  Pair pair = MakePair();
  Exchange(pair);
  SetOption(pair.client, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  BecomeDeaf(pair.server);
  auto sender = Async([&] {
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 100; ++i) {
      if (send(pair.client, block.data(), block.size(), MSG_NOSIGNAL) < 0) return errno;
    }
    return 0;
  });
  REQUIRE(Get(sender) == ETIMEDOUT);
  RequireOver(pair.client);
  HearAgain(pair.server);
}

}  // namespace
}  // namespace posix_test
