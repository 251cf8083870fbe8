// epoll: the life of registrations: sockets not yet connected, listeners, duplicates, several sets.
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "test/posix/waiting/epoll_support.h"

namespace posix_test {
namespace {

TEST_CASE("epoll: a listener shared by two sets with EPOLLEXCLUSIVE") {
  constexpr int kClients = 50;
  Listener listener = Listen(AF_INET, 128, SOCK_NONBLOCK);
  std::atomic<int> accepted{0};
  auto worker = [&] {
    return Async([&] {
      Fd ep(epoll_create1(0));
      epoll_event event{EPOLLIN | EPOLLEXCLUSIVE, {}};
      if (epoll_ctl(ep, EPOLL_CTL_ADD, listener.fd, &event) != 0) return false;
      for (const Stopwatch watch; accepted < kClients && watch.ms() < kPatienceMs;) {
        if (epoll_wait(ep, &event, 1, kQuietMs) != 1) continue;
        Fd server(accept(listener.fd, nullptr, nullptr));
        if (server >= 0) ++accepted;
      }
      return true;
    });
  };
  auto one = worker(), two = worker();
  for (int i = 0; i < kClients; ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  }
  REQUIRE(Get(one));
  REQUIRE(Get(two));
  REQUIRE(accepted == kClients);
  REQUIRE_ERRNO(accept(listener.fd, nullptr, nullptr), EAGAIN);
}

TEST_CASE("epoll: registered before connect") {
  const uint32_t trigger = GENERATE(0u, static_cast<uint32_t>(EPOLLET));
  Listener listener = Listen();
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  Epoll ep;
  ep.Add(client, EPOLLIN | EPOLLOUT | trigger, 1);
  REQUIRE(ep.Wait(0) == Events{{1, EPOLLOUT | EPOLLHUP}});
  if (connect(client, listener.address.get(), listener.address.length) != 0) REQUIRE(errno == EINPROGRESS);
  Events events;
  REQUIRE(Eventually([&] { return (events = ep.Wait(100)) == Events{{1, EPOLLOUT}}; }));
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(server, "x"));
  REQUIRE(Eventually([&] { return (ep.Wait(100)[1] & EPOLLIN) != 0; }));
  REQUIRE(ReceiveExactly(client, 1) == "x");
}

TEST_CASE("epoll: registered while connecting and the connect is refused", "[refused]") {
  Address target = ClosedPort(AF_INET);
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  REQUIRE_ERRNO(connect(client, target.get(), target.length), EINPROGRESS);
  Epoll ep;
  ep.Add(client, EPOLLOUT | EPOLLET, 5);
  REQUIRE(ep.Wait() == Events{{5, EPOLLOUT | EPOLLERR | EPOLLHUP}});
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == ECONNREFUSED);
}

TEST_CASE("epoll: registered before listen") {
  Fd fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
  Address address = Loopback(AF_INET);
  REQUIRE(bind(fd, address.get(), address.length) == 0);
  Epoll ep;
  ep.Add(fd, EPOLLIN, 3);
  REQUIRE(listen(fd, 8) == 0);
  REQUIRE(Eventually([&] { return ep.Wait(0).empty(); }));
  address = LocalOf(fd);
  for (int i = 0; i < 3; ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, address.get(), address.length) == 0);
    REQUIRE(ep.Wait() == Events{{3, EPOLLIN}});
    Fd server(accept(fd, nullptr, nullptr));
    REQUIRE(server >= 0);
    REQUIRE(ep.Quiet(20));
  }
}

TEST_CASE("epoll: a listener edge-triggered") {
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  Epoll ep;
  ep.Add(listener.fd, EPOLLIN | EPOLLET, 3);
  for (int i = 0; i < 3; ++i) {
    std::vector<Fd> clients;
    for (int j = 0; j < 4; ++j) {
      clients.push_back(TcpSocket());
      REQUIRE(connect(clients.back(), listener.address.get(), listener.address.length) == 0);
    }
    int accepted = 0;
    Stopwatch watch;
    while (accepted < 4 && watch.ms() < kPatienceMs) {
      REQUIRE(ep.Wait() == Events{{3, EPOLLIN}});
      while (Fd(accept(listener.fd, nullptr, nullptr)) >= 0) ++accepted;
      REQUIRE(errno == EAGAIN);
    }
    REQUIRE(accepted == 4);
    REQUIRE(ep.Quiet(30));
  }
}

TEST_CASE("epoll: a listener one shot") {
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  Epoll ep;
  ep.Add(listener.fd, EPOLLIN | EPOLLONESHOT, 3);
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(ep.Wait() == Events{{3, EPOLLIN}});
  REQUIRE(ep.Quiet());
  ep.Mod(listener.fd, EPOLLIN | EPOLLONESHOT, 4);
  REQUIRE(ep.Wait() == Events{{4, EPOLLIN}});
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  ep.Mod(listener.fd, EPOLLIN, 5);
  REQUIRE(ep.Quiet());
}

// A client that no library stands in front of: plain TCP, by bare system calls.
int ConnectBare(Listener& listener) {
  const int fd = static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_STREAM, 0));
  REQUIRE(fd >= 0);
  REQUIRE(syscall(SYS_connect, fd, listener.address.get(), listener.address.length) == 0);
  return fd;
}

TEST_CASE("epoll: a listener one shot, and clients of several kinds", "[mixed]") {
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  Epoll ep;
  ep.Add(listener.fd, EPOLLIN | EPOLLONESHOT, 3);
  for (int round = 0; round < 3; ++round) {
    Fd first = TcpSocket();
    if (round != 1) REQUIRE(connect(first, listener.address.get(), listener.address.length) == 0);
    const int bare = ConnectBare(listener);
    if (round == 1) {
      REQUIRE(ep.Wait() == Events{{3, EPOLLIN}});
      REQUIRE(connect(first, listener.address.get(), listener.address.length) == 0);
    } else {
      REQUIRE(ep.Wait() == Events{{3, EPOLLIN}});
    }
    REQUIRE(ep.Quiet());
    for (int i = 0; i < 2; ++i) {
      ep.Mod(listener.fd, EPOLLIN | EPOLLONESHOT, 3);
      REQUIRE(ep.Wait() == Events{{3, EPOLLIN}});
      REQUIRE(ep.Quiet(20));
      Fd server(accept(listener.fd, nullptr, nullptr));
      REQUIRE(server >= 0);
    }
    syscall(SYS_close, bare);
    ep.Mod(listener.fd, EPOLLIN | EPOLLONESHOT, 3);
    REQUIRE(ep.Quiet(20));
  }
}

TEST_CASE("epoll: a blocked wait hears of a registration made meanwhile") {
  Pair pair = MakePair();
  Epoll ep;
  auto waiter = Async([&] { return ep.Wait(); });
  REQUIRE(StillRunning(waiter));
  ep.Add(pair.server, EPOLLIN, 1);
  REQUIRE(StillRunning(waiter));
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(waiter) == Events{{1, EPOLLIN}});
  auto second = Async([&] {
    char c;
    recv(pair.server, &c, 1, 0);
    return ep.Wait();
  });
  REQUIRE(StillRunning(second));
  ep.Mod(pair.server, EPOLLIN | EPOLLOUT, 2);
  REQUIRE(Get(second) == Events{{2, EPOLLOUT}});
}

// The thread slept before the set had anything but a pipe: no link wakes it, only who makes the change.
TEST_CASE("epoll: a wait that began before the first socket came hears of what is there already") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "ab"));
  REQUIRE(ReceiveExactly(pair.server, 1) == "a");  // the rest is out of the kernel's hands
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const Fd read_end(pipe_fds[0]), write_end(pipe_fds[1]);
  Epoll ep;
  ep.Add(read_end, EPOLLIN, 1);
  std::atomic<pid_t> tid{0};
  auto waiter = Async([&] {
    tid = gettid();
    return ep.Wait(kPatienceMs);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  ep.Add(pair.server, EPOLLIN | EPOLLET, 2);
  REQUIRE(Get(waiter) == Events{{2, EPOLLIN}});
}

TEST_CASE("epoll: a wait that began before the first socket came hears of a finished connect") {
  Listener listener = Listen();
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  const Fd read_end(pipe_fds[0]), write_end(pipe_fds[1]);
  Epoll ep;
  ep.Add(read_end, EPOLLIN, 1);
  std::atomic<pid_t> tid{0};
  auto waiter = Async([&] {
    tid = gettid();
    return ep.Wait(kPatienceMs);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  if (connect(client, listener.address.get(), listener.address.length) != 0) REQUIRE(errno == EINPROGRESS);
  ep.Add(client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 2);
  REQUIRE(Get(waiter) == Events{{2, EPOLLOUT}});
}

// While one thread waits, another registers the socket, and the peer sends at that moment.
TEST_CASE("epoll: a message that comes while its socket is being registered is reported") {
  constexpr int kRounds = 300;
  Epoll ep;
  std::atomic<int> told{0};
  std::atomic<bool> over{false};
  std::thread waiter([&] {
    while (!over) {
      epoll_event event;
      if (epoll_wait(ep.fd(), &event, 1, 20) == 1 && (event.events & EPOLLIN) != 0) ++told;
    }
  });
  std::atomic<int> round{-1};
  std::array<Pair, 4> pairs;
  for (Pair& pair : pairs) pair = MakePair();
  std::thread sender([&] {
    for (int i = 0; i < kRounds; ++i) {
      while (round != i) std::this_thread::yield();
      (void)SendAll(pairs[static_cast<size_t>(i) % pairs.size()].client, "x");
    }
  });
  bool all = true;
  for (int i = 0; i < kRounds; ++i) {
    Pair& pair = pairs[static_cast<size_t>(i) % pairs.size()];
    round = i;
    all = all && ep.Control(EPOLL_CTL_ADD, pair.server, EPOLLIN | EPOLLOUT | EPOLLET, 1) == 0;
    all = all && Eventually([&] { return told > i; }) && ReceiveExactly(pair.server, 1) == "x";
    if (all) ep.Del(pair.server);
  }
  over = true;
  sender.join();
  waiter.join();
  CHECK(all);
  CHECK(told >= kRounds);
}

TEST_CASE("epoll: closing removes the registration") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | EPOLLOUT, 1);
  REQUIRE(ep.Wait() == Events{{1, EPOLLOUT}});
  const int number = pair.server;
  pair.server.reset();
  REQUIRE(ep.Quiet());
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_DEL, number, 0, 0), EBADF);
  Pair next = MakePair();
  REQUIRE(ep.Quiet());
  ep.Add(next.client, EPOLLOUT, 2);
  ep.Add(next.server, EPOLLOUT, 3);
  REQUIRE(ep.Wait() == Events{{2, EPOLLOUT}, {3, EPOLLOUT}});
}

TEST_CASE("epoll: a duplicate keeps the registration alive") {
  Pair pair = MakePair();
  Epoll ep;
  ep.Add(pair.server, EPOLLIN, 42);
  Fd copy(dup(pair.server));
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ep.Wait() == Events{{42, EPOLLIN}});
  REQUIRE(ReceiveExactly(copy, 1) == "x");
  REQUIRE(ep.Quiet());
  copy.reset();
  REQUIRE(ep.Quiet());
}

TEST_CASE("epoll: of two registered duplicates one is closed") {
  const uint32_t trigger = GENERATE(0u, static_cast<uint32_t>(EPOLLET));
  Pair pair = MakePair();
  Fd copy(dup(pair.server));
  Epoll ep;
  ep.Add(pair.server, EPOLLIN | trigger, 1);
  ep.Add(copy, EPOLLIN | trigger, 2);
  const int number = pair.server;
  pair.server.reset();
  REQUIRE_ERRNO(ep.Control(EPOLL_CTL_DEL, number, 0, 0), EBADF);
  // The number's next user has nothing to do with it.
  Pair next = MakePair();
  for (const int fd : {next.client.get(), next.server.get()}) {
    ep.Add(fd, EPOLLIN | trigger, 3);
    ep.Del(fd);
  }
  for (int i = 0; i < 3; ++i) {
    REQUIRE(SendAll(pair.client, "x"));
    Events events;
    REQUIRE(Eventually([&] {
      for (const auto& [data, what] : ep.Wait(100)) events[data] |= what;
      return events == Events{{1, EPOLLIN}, {2, EPOLLIN}};
    }));
    REQUIRE(ReceiveExactly(copy, 1) == "x");
    REQUIRE(ep.Quiet());
  }
  copy.reset();
  REQUIRE(ep.Quiet());
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("epoll: a duplicate keeps a listener's registration alive") {
  Listener listener = Listen(AF_INET, 16, SOCK_NONBLOCK);
  Epoll ep;
  ep.Add(listener.fd, EPOLLIN, 7);
  Fd copy(dup(listener.fd));
  listener.fd.reset();
  for (int i = 0; i < 3; ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    REQUIRE(ep.Wait() == Events{{7, EPOLLIN}});
    Fd server(accept(copy, nullptr, nullptr));
    REQUIRE(server >= 0);
    REQUIRE(ep.Quiet());
  }
  copy.reset();
  REQUIRE(ep.Quiet());
}

TEST_CASE("epoll: duplicates are registered apart with their own data") {
  Pair pair = MakePair();
  Fd copy(dup(pair.server));
  Epoll ep;
  ep.Add(pair.server, EPOLLIN, 1);
  ep.Add(copy, EPOLLIN | EPOLLOUT, 2);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}, {2, EPOLLIN | EPOLLOUT}});
  ep.Del(copy);
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
  copy.reset();
  REQUIRE(ep.Wait() == Events{{1, EPOLLIN}});
}

TEST_CASE("epoll: one socket in two sets") {
  Pair pair = MakePair();
  Epoll one, two;
  one.Add(pair.server, EPOLLIN, 1);
  two.Add(pair.server, EPOLLIN | EPOLLET, 2);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(one.Wait() == Events{{1, EPOLLIN}});
  REQUIRE(two.Wait() == Events{{2, EPOLLIN}});
  REQUIRE(one.Wait() == Events{{1, EPOLLIN}});
  REQUIRE(two.Quiet());
}

TEST_CASE("epoll: a duplicate of the epoll descriptor is the same set") {
  Pair pair = MakePair();
  Epoll ep;
  Fd copy(dup(ep.fd()));
  ep.Add(pair.server, EPOLLIN, 1);
  REQUIRE(SendAll(pair.client, "x"));
  epoll_event event;
  REQUIRE(epoll_wait(copy, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.data.u64 == 1);
  REQUIRE(epoll_ctl(copy, EPOLL_CTL_DEL, pair.server, nullptr) == 0);
  REQUIRE(ep.Quiet());
}

TEST_CASE("epoll: an epoll set in an epoll set") {
  Pair pair = MakePair();
  Epoll inner, outer;
  inner.Add(pair.server, EPOLLIN, 1);
  outer.Add(inner.fd(), EPOLLIN, 2);
  REQUIRE(outer.Quiet());
  auto waiter = Async([&] { return outer.Wait(); });
  REQUIRE(StillRunning(waiter));
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(waiter) == Events{{2, EPOLLIN}});
  REQUIRE(inner.Wait() == Events{{1, EPOLLIN}});
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  REQUIRE(outer.Quiet());
}

TEST_CASE("epoll: a child that closes what it inherited leaves the parent's epoll alone") {
  const bool epoll_first = GENERATE(true, false);
  Pair pair = MakePair();
  Fd ep(epoll_create1(0));
  epoll_event event{EPOLLIN, {}};
  event.data.u64 = 42;
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
  const pid_t child = Child([&] {
    if (epoll_first) ep.reset();
    pair.server.reset();
    ep.reset();
    return 0;
  });
  REQUIRE(ExitedWith(Reap(child), 0));
  REQUIRE(SendAll(pair.client, "news"));
  event = {};
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.data.u64 == 42);
  REQUIRE(ReceiveExactly(pair.server, 4) == "news");
}

TEST_CASE("epoll: a listener that is closed here and open in a child does not keep a wait busy",
          "[unconnected]") {
  Listener listener = Listen();
  Epoll ep;
  ep.Add(listener.fd, EPOLLIN, 7);
  int go[2];
  REQUIRE(pipe(go) == 0);
  const pid_t child = Child([&] {
    char c;
    return read(go[0], &c, 1) == 1 ? 0 : 1;
  });
  listener.fd.reset();
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
  const int result = connect(client, listener.address.get(), listener.address.length);
  REQUIRE((result == 0 || errno == EINPROGRESS));
  WaitFor(client, POLLOUT, kQuietMs);  // the kernel has it by then, whoever answers
  timespec before, after;
  REQUIRE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before) == 0);
  ep.Wait(200);
  REQUIRE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after) == 0);
  REQUIRE((after.tv_sec - before.tv_sec) * 1'000'000'000 + after.tv_nsec - before.tv_nsec < 50'000'000);
  client.reset();
  REQUIRE(write(go[1], "x", 1) == 1);
  REQUIRE(ExitedWith(Reap(child), 0));
  for (const int fd : go) close(fd);
}

}  // namespace
}  // namespace posix_test
