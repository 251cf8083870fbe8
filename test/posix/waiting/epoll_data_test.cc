// epoll: registrations that share their data, as where a program has one handler for many descriptors, or
// none. No event may get lost for that: with EPOLLONESHOT and EPOLLET it would not come again.
#include <unistd.h>

#include "test/posix/waiting/epoll_support.h"

namespace posix_test {
namespace {

// How many events come until `want` have; all of them are of that data.
int Count(Epoll& ep, int want, uint64_t data = 0) {
  int count = 0;
  while (count < want) {
    epoll_event events[8];
    const int n = epoll_wait(ep.fd(), events, 8, kPatienceMs);
    if (n <= 0) break;
    for (int i = 0; i < n; ++i) {
      REQUIRE(events[i].data.u64 == data);
      REQUIRE(events[i].events == EPOLLIN);
    }
    count += n;
  }
  return count;
}

Fd ConnectedTo(Listener& listener) {
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  return client;
}

struct TwoEnds {
  Fd read_end, write_end;
};
TwoEnds MakePipe() {
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

TEST_CASE("epoll: listeners with the same data, each one shot") {
  Listener one = Listen(AF_INET, 16, SOCK_NONBLOCK), two = Listen(AF_INET, 16, SOCK_NONBLOCK);
  Epoll ep;
  ep.Add(one.fd, EPOLLIN | EPOLLONESHOT, 0);
  ep.Add(two.fd, EPOLLIN | EPOLLONESHOT, 0);
  Fd a = ConnectedTo(one), b = ConnectedTo(two), c = ConnectedTo(one);
  REQUIRE(Count(ep, 2) == 2);
  REQUIRE(ep.Quiet());
  REQUIRE(Fd(accept(one.fd, nullptr, nullptr)) >= 0);
  REQUIRE(Fd(accept(two.fd, nullptr, nullptr)) >= 0);
  ep.Mod(one.fd, EPOLLIN | EPOLLONESHOT, 0);
  ep.Mod(two.fd, EPOLLIN | EPOLLONESHOT, 0);
  REQUIRE(Count(ep, 1) == 1);
  REQUIRE(ep.Quiet());
  REQUIRE(Fd(accept(one.fd, nullptr, nullptr)) >= 0);
  REQUIRE_ERRNO(accept(two.fd, nullptr, nullptr), EAGAIN);
}

TEST_CASE("epoll: a listener and a pipe with the same data, each one shot") {
  const bool listener_first = GENERATE(true, false);
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  TwoEnds pipe = MakePipe();
  Epoll ep;
  ep.Add(listener.fd, EPOLLIN | EPOLLONESHOT, 0);
  ep.Add(pipe.read_end, EPOLLIN | EPOLLONESHOT, 0);
  if (!listener_first) REQUIRE(write(pipe.write_end, "x", 1) == 1);
  Fd client = ConnectedTo(listener);
  if (listener_first) REQUIRE(write(pipe.write_end, "x", 1) == 1);
  REQUIRE(Count(ep, 2) == 2);
  REQUIRE(ep.Quiet());
  // The listener has had its shot; the pipe's next is the pipe's.
  ep.Mod(pipe.read_end, EPOLLIN | EPOLLONESHOT, 0);
  REQUIRE(Count(ep, 1) == 1);
  REQUIRE(ep.Quiet());
  ep.Mod(listener.fd, EPOLLIN | EPOLLONESHOT, 5);
  REQUIRE(Count(ep, 1, 5) == 1);
  REQUIRE(Fd(accept(listener.fd, nullptr, nullptr)) >= 0);
}

TEST_CASE("epoll: a listener and a stream with the same data, each one shot") {
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(listener.fd, EPOLLIN | EPOLLONESHOT, 0);
  ep.Add(pair.server, EPOLLIN | EPOLLONESHOT, 0);
  for (int round = 0; round < 3; ++round) {
    Fd client = ConnectedTo(listener);
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(Count(ep, 2) == 2);
    REQUIRE(ep.Quiet(20));
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    REQUIRE(Fd(accept(listener.fd, nullptr, nullptr)) >= 0);
    ep.Mod(listener.fd, EPOLLIN | EPOLLONESHOT, 0);
    ep.Mod(pair.server, EPOLLIN | EPOLLONESHOT, 0);
  }
}

TEST_CASE("epoll: listeners and a pipe with the same data, edge-triggered") {
  Listener one = Listen(AF_INET, 16, SOCK_NONBLOCK), two = Listen(AF_INET, 16, SOCK_NONBLOCK);
  TwoEnds pipe = MakePipe();
  Epoll ep;
  for (const int fd : {one.fd.get(), two.fd.get(), pipe.read_end.get()}) ep.Add(fd, EPOLLIN | EPOLLET, 0);
  for (int round = 0; round < 3; ++round) {
    Fd a = ConnectedTo(one), b = ConnectedTo(two);
    REQUIRE(write(pipe.write_end, "x", 1) == 1);
    REQUIRE(Count(ep, 3) == 3);
    REQUIRE(ep.Quiet(20));
    for (const int fd : {one.fd.get(), two.fd.get()}) REQUIRE(Fd(accept(fd, nullptr, nullptr)) >= 0);
  }
}

TEST_CASE(
    "epoll: a closed listener's number is registered anew while a duplicate keeps the old registration") {
  Listener one = Listen(AF_INET, 16, SOCK_NONBLOCK);
  Epoll ep;
  ep.Add(one.fd, EPOLLIN, 1);
  Fd copy(dup(one.fd));
  const int number = one.fd;
  one.fd.reset();
  Listener two = Listen(AF_INET, 16, SOCK_NONBLOCK);
  REQUIRE(two.fd == number);
  ep.Add(two.fd, EPOLLIN, 2);
  Fd a = ConnectedTo(one);
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
  Fd b = ConnectedTo(two);
  Events events;
  REQUIRE(Eventually([&] { return (events = ep.Wait()) == Events{{1, EPOLLIN}, {2, EPOLLIN}}; }));
  REQUIRE(Fd(accept(copy, nullptr, nullptr)) >= 0);
  REQUIRE(Eventually([&] { return (events = ep.Wait()) == Events{{2, EPOLLIN}}; }));
  REQUIRE(Fd(accept(two.fd, nullptr, nullptr)) >= 0);
  REQUIRE(ep.Quiet());
}

TEST_CASE("epoll: a set in a set, a pipe and a stream with the same data") {
  const bool set_first = GENERATE(true, false);
  const uint32_t edge = GENERATE(0u, uint32_t{EPOLLET});
  Pair inside = MakePair(), beside = MakePair();
  TwoEnds pipe = MakePipe();
  Epoll inner, outer;
  inner.Add(inside.server, EPOLLIN, 1);
  if (set_first) outer.Add(inner.fd(), EPOLLIN, 0);
  for (const int fd : {pipe.read_end.get(), beside.server.get()}) outer.Add(fd, EPOLLIN | edge, 0);
  if (!set_first) outer.Add(inner.fd(), EPOLLIN, 0);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(Eventually([&] { return inner.Quiet(0) && outer.Quiet(0); }));
    REQUIRE(write(pipe.write_end, "x", 1) == 1);
    REQUIRE(outer.Wait() == Events{{0, EPOLLIN}});
    char c;
    REQUIRE(read(pipe.read_end, &c, 1) == 1);
    REQUIRE(Eventually([&] { return inner.Quiet(0) && outer.Quiet(0); }));
    REQUIRE(SendAll(beside.client, "x"));
    REQUIRE(outer.Wait() == Events{{0, EPOLLIN}});
    REQUIRE(ReceiveExactly(beside.server, 1) == "x");
    REQUIRE(SendAll(inside.client, "x"));
    REQUIRE(outer.Wait() == Events{{0, EPOLLIN}});
    REQUIRE(inner.Wait() == Events{{1, EPOLLIN}});
    REQUIRE(ReceiveExactly(inside.server, 1) == "x");
  }
}

}  // namespace
}  // namespace posix_test
