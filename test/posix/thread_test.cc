// Threads and signals.
#include <pthread.h>
#include <sys/epoll.h>

#include <atomic>
#include <thread>

#include "test/posix/support.h"

namespace posix_test {
namespace {

TEST_CASE("threads: one reads and one writes on each end") {
  Pair pair = MakePair();
  const std::string there = Pattern(20'000'000, 1), back = Pattern(20'000'000, 2);
  auto a = Async([&] { return SendAll(pair.client, there); });
  auto b = Async([&] { return SendAll(pair.server, back); });
  auto c = Async([&] { return Hash(ReceiveExactly(pair.client, back.size())); });
  auto d = Async([&] { return Hash(ReceiveExactly(pair.server, there.size())); });
  REQUIRE(Get(a));
  REQUIRE(Get(b));
  REQUIRE(Get(c) == Hash(back));
  REQUIRE(Get(d) == Hash(there));
}

TEST_CASE("threads: a receiver that sleeps does not hold up a sender") {
  Pair pair = MakePair();
  auto receiver = Async([&] { return ReceiveExactly(pair.client, 3); });
  REQUIRE(StillRunning(receiver));
  for (int i = 0; i < 100; ++i) {
    REQUIRE(SendAll(pair.client, Pattern(1000, static_cast<uint32_t>(i))));
    REQUIRE(ReceiveExactly(pair.server, 1000) == Pattern(1000, static_cast<uint32_t>(i)));
  }
  REQUIRE(SendAll(pair.server, "end"));
  REQUIRE(Get(receiver) == "end");
}

TEST_CASE("threads: many writers on one socket lose nothing") {
  Pair pair = MakePair();
  std::vector<std::future<bool>> writers;
  for (int i = 0; i < 8; ++i) {
    writers.push_back(Async([&, i] {
      const std::string block(64, static_cast<char>('a' + i));
      for (int n = 0; n < 500; ++n)
        if (send(pair.client, block.data(), block.size(), 0) != 64) return false;
      return true;
    }));
  }
  const std::string got = ReceiveExactly(pair.server, 8 * 500 * 64);
  for (auto& writer : writers) REQUIRE(Get(writer));
  REQUIRE(got.size() == 8 * 500 * 64);
  for (int i = 0; i < 8; ++i) REQUIRE(std::count(got.begin(), got.end(), 'a' + i) == 500 * 64);
}

TEST_CASE("threads: many readers on one socket share the bytes") {
  Pair pair = MakePair();
  std::atomic<size_t> total{0};
  std::vector<std::future<bool>> readers;
  for (int i = 0; i < 6; ++i) {
    readers.push_back(Async([&] {
      char room[777];
      ssize_t n;
      while ((n = recv(pair.server, room, sizeof(room), 0)) > 0) total += static_cast<size_t>(n);
      return n == 0;
    }));
  }
  REQUIRE(SendAll(pair.client, Pattern(2'000'000)));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  for (auto& reader : readers) REQUIRE(Get(reader));
  REQUIRE(total == 2'000'000);
}

TEST_CASE("threads: 50 threads with 50 connections each") {
  Listener listener = Listen(AF_INET, 256);
  constexpr int kThreads = 50, kConnections = 50;
  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  std::vector<std::future<bool>> servers;
  SetNonblocking(listener.fd);
  for (int i = 0; i < 8; ++i) {
    servers.push_back(Async([&] {
      while (!stop) {
        if (PollOne(listener.fd, POLLIN, 50) == 0) continue;
        Fd server(accept(listener.fd, nullptr, nullptr));
        if (server < 0) continue;
        const std::string got = ReceiveExactly(server, 100);
        if (got.size() != 100 || !SendAll(server, got)) return false;
        ++served;
      }
      return true;
    }));
  }
  std::vector<std::future<int>> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.push_back(Async([&, t] {
      for (int i = 0; i < kConnections; ++i) {
        Fd fd(socket(AF_INET, SOCK_STREAM, 0));
        Address target = listener.address;
        if (connect(fd, target.get(), target.length) != 0) return errno;
        const std::string data = Pattern(100, static_cast<uint32_t>(t * kConnections + i));
        if (!SendAll(fd, data)) return -2;
        if (ReceiveExactly(fd, 100) != data) return -3;
      }
      return 0;
    }));
  }
  for (auto& client : clients) REQUIRE(Get(client) == 0);
  REQUIRE(Eventually([&] { return served == kThreads * kConnections; }));
  stop = true;
  for (auto& server : servers) REQUIRE(Get(server));
}

TEST_CASE("threads: a descriptor closed under a blocked receive leaves no wreck") {
  // What the blocked call returns is not defined; that the peer and the number's next user are unharmed is.
  Pair pair = MakePair();
  const int number = pair.server;
  std::atomic<pid_t> tid{0};
  auto blocked = Async([&tid, number] {
    tid = gettid();
    char c;
    return recv(number, &c, 1, 0);
  });
  // One that has not yet gone to sleep would read from the number's next user.
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  pair.server.release();
  REQUIRE(close(number) == 0);
  Pair next = MakePair();
  REQUIRE(SendAll(next.client, "next"));
  REQUIRE(ReceiveExactly(next.server, 4) == "next");
  pair.client.reset();
  Get(blocked);
}

TEST_CASE("threads: a connect that sleeps does not hold up other calls on its socket", "[refused]") {
  // Nobody accepts, and the backlog is full: a blocking connect sleeps.
  Listener listener = Listen(AF_INET, 0);
  std::vector<Fd> fillers;
  bool sleeps = false;
  while (!sleeps) {
    REQUIRE(fillers.size() < 20);
    fillers.push_back(TcpSocket(AF_INET, SOCK_NONBLOCK));
    REQUIRE_ERRNO(connect(fillers.back(), listener.address.get(), listener.address.length), EINPROGRESS);
    sleeps = !WaitFor(fillers.back(), POLLOUT, 300);
  }
  Fd client = TcpSocket();
  std::atomic<pid_t> tid{0};
  auto connected = Async([&] {
    tid = gettid();
    return connect(client, listener.address.get(), listener.address.length);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(StillRunning(connected));
  Stopwatch watch;
  REQUIRE(GetOption(client, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
  REQUIRE(GetOption(client, SOL_SOCKET, SO_ERROR) == 0);
  SetOption(client, SOL_SOCKET, SO_KEEPALIVE, 1);
  REQUIRE(fcntl(client, F_GETFL) >= 0);
  REQUIRE(PollOne(client, POLLIN, 0) == 0);
  REQUIRE(LocalOf(client).port() != 0);
  REQUIRE(watch.ms() < 1000);
  listener.fd.reset();
  Get(connected);
}

TEST_CASE("threads: a full link is flushed beside a receiver that sleeps") {
  Listener listener = Listen();
  SetOption(listener.fd, SOL_SOCKET, SO_RCVBUF, 8 * 1024);
  Pair pair;
  pair.client = TcpSocket();
  SetOption(pair.client, SOL_SOCKET, SO_SNDBUF, 8 * 1024);
  REQUIRE(connect(pair.client, listener.address.get(), listener.address.length) == 0);
  pair.server = Fd(accept(listener.fd, nullptr, nullptr));
  REQUIRE(pair.server >= 0);
  auto receiver = Async([&] {
    char c = 0;
    return recv(pair.client, &c, 1, 0) == 1 && c == '!';
  });
  REQUIRE(StillRunning(receiver));
  const std::string block = Pattern(16 * 1024);
  size_t sent = 0;
  ssize_t n;
  while ((n = send(pair.client, block.data(), block.size(), MSG_DONTWAIT)) > 0)
    sent += static_cast<size_t>(n);
  REQUIRE(errno == EAGAIN);
  // From here on nobody calls on the client's side.
  REQUIRE(ReceiveExactly(pair.server, sent).size() == sent);
  REQUIRE(SendAll(pair.server, "!"));
  REQUIRE(Get(receiver));
}

std::atomic<int> signals_seen = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // or a handler might not touch it
void CountSignal(int) { ++signals_seen; }

void Handle(int flags) {
  signals_seen = 0;
  struct sigaction action {};
  action.sa_handler = CountSignal;
  action.sa_flags = flags;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
}

// Runs `call` in a thread and sends it SIGUSR1 once it sleeps; the result, or -errno.
struct Interrupted {
  std::future<long> result;
  pthread_t thread{};

  template <typename Call>
  explicit Interrupted(Call call) {
    std::promise<std::pair<pthread_t, pid_t>> started;
    auto identity = started.get_future();
    result = Async([call, &started] {
      started.set_value({pthread_self(), gettid()});
      const long n = static_cast<long>(call());
      return n < 0 ? -static_cast<long>(errno) : n;
    });
    const auto [pthread, tid] = identity.get();
    thread = pthread;
    const pid_t id = tid;
    REQUIRE(Eventually([id] { return IsAsleep(id); }));
    REQUIRE(pthread_kill(thread, SIGUSR1) == 0);
    REQUIRE(Eventually([] { return signals_seen == 1; }));
  }
};

TEST_CASE("signals: EINTR without SA_RESTART") {
  Handle(0);
  Pair pair = MakePair();
  Listener listener = Listen();
  char c = 0;
  SECTION("recv") {
    Interrupted call([&] { return recv(pair.server, &c, 1, 0); });
    REQUIRE(Get(call.result) == -EINTR);
  }
  SECTION("read") {
    Interrupted call([&] { return read(pair.server, &c, 1); });
    REQUIRE(Get(call.result) == -EINTR);
  }
  SECTION("accept") {
    Interrupted call([&] { return accept(listener.fd, nullptr, nullptr); });
    REQUIRE(Get(call.result) == -EINTR);
  }
  SECTION("send") {
    SetNonblocking(pair.client);
    Fill(pair.client);
    SetNonblocking(pair.client, false);
    Interrupted call([&] { return send(pair.client, &c, 1, 0); });
    REQUIRE(Get(call.result) == -EINTR);
  }
  SECTION("poll") {
    Interrupted call([&] {
      pollfd p{pair.server, POLLIN, 0};
      return poll(&p, 1, kPatienceMs);
    });
    REQUIRE(Get(call.result) == -EINTR);
  }
  SECTION("select") {
    Interrupted call([&] {
      fd_set set;
      FD_ZERO(&set);
      FD_SET(pair.server, &set);
      return select(pair.server + 1, &set, nullptr, nullptr, nullptr);
    });
    REQUIRE(Get(call.result) == -EINTR);
  }
  SECTION("epoll_wait") {
    Fd ep(epoll_create1(0));
    epoll_event event{EPOLLIN, {}};
    REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
    Interrupted call([&] { return epoll_wait(ep, &event, 1, kPatienceMs); });
    REQUIRE(Get(call.result) == -EINTR);
  }
  REQUIRE(SendAll(pair.server, "alive"));
  REQUIRE(ReceiveExactly(pair.client, 5) == "alive");
}

TEST_CASE("signals: SA_RESTART goes on") {
  Handle(SA_RESTART);
  Pair pair = MakePair();
  Listener listener = Listen();
  char c = 0;
  SECTION("recv") {
    Interrupted call([&] { return recv(pair.server, &c, 1, 0); });
    REQUIRE(StillRunning(call.result));
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(Get(call.result) == 1);
  }
  SECTION("accept") {
    Interrupted call([&] { return accept(listener.fd, nullptr, nullptr); });
    REQUIRE(StillRunning(call.result));
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    Fd server(static_cast<int>(Get(call.result)));
    REQUIRE(server >= 0);
  }
  SECTION("send") {
    SetNonblocking(pair.client);
    const size_t filled = Fill(pair.client);
    SetNonblocking(pair.client, false);
    Interrupted call([&] { return send(pair.client, &c, 1, 0); });
    REQUIRE(StillRunning(call.result));
    REQUIRE(ReceiveExactly(pair.server, filled).size() == filled);
    REQUIRE(Get(call.result) == 1);
  }
  SECTION("poll and epoll_wait are never restarted") {
    Interrupted call([&] {
      pollfd p{pair.server, POLLIN, 0};
      return poll(&p, 1, kPatienceMs);
    });
    REQUIRE(Get(call.result) == -EINTR);
  }
}

TEST_CASE("signals: a receive with a time-out is not restarted") {
  Handle(SA_RESTART);
  Pair pair = MakePair();
  const timeval tv{20, 0};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
  char c;
  Interrupted call([&] { return recv(pair.server, &c, 1, 0); });
  REQUIRE(Get(call.result) == -EINTR);
}

TEST_CASE("signals: a partial MSG_WAITALL tells what it has") {
  Handle(0);
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "abc"));
  char room[10];
  Interrupted call([&] { return recv(pair.server, room, sizeof(room), MSG_WAITALL); });
  REQUIRE(Get(call.result) == 3);
}

TEST_CASE("signals: a handler may send on the socket that the thread receives from") {
  static int fd;
  Pair pair = MakePair();
  fd = pair.server;
  struct sigaction action {};
  action.sa_handler = [](int) {
    if (send(fd, "from the handler", 16, MSG_DONTWAIT | MSG_NOSIGNAL) == 16) signals_seen = 1;
  };
  action.sa_flags = SA_RESTART;
  signals_seen = 0;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  char c = 0;
  Interrupted call([&] { return recv(pair.server, &c, 1, 0); });
  REQUIRE(ReceiveExactly(pair.client, 16) == "from the handler");
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(call.result) == 1);
}

TEST_CASE("signals: a storm of signals disturbs no stream") {
  Handle(SA_RESTART);
  Pair pair = MakePair();
  const std::string data = Pattern(10'000'000);
  std::atomic<bool> stop{false};
  const pthread_t main_thread = pthread_self();
  auto storm = Async([&] {
    while (!stop) {
      pthread_kill(main_thread, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    return true;
  });
  auto sender = Async([&] { return SendAll(pair.client, data); });
  std::string got(data.size(), '\0');
  size_t at = 0;
  while (at < got.size()) {
    const ssize_t n = recv(pair.server, got.data() + at, got.size() - at, 0);
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  stop = true;
  REQUIRE(Get(storm));
  REQUIRE(at == got.size());
  REQUIRE(Get(sender));
  REQUIRE(Hash(got) == Hash(data));
}

// A listener whose backlog is full: connects to it sleep until Open().
struct FullListener {
  Listener listener = Listen(AF_INET, 0);
  std::vector<Fd> fillers;

  // Full is what keeps two in a row waiting: one may just be slow.
  FullListener() {
    for (int late = 0; late < 2;) {
      REQUIRE(fillers.size() < 20);
      fillers.push_back(TcpSocket(AF_INET, SOCK_NONBLOCK));
      REQUIRE_ERRNO(connect(fillers.back(), listener.address.get(), listener.address.length), EINPROGRESS);
      late = WaitFor(fillers.back(), POLLOUT, 300) ? 0 : late + 1;
    }
    SetNonblocking(listener.fd);
  }
  int Connect(int fd) { return connect(fd, listener.address.get(), listener.address.length); }
  // Accepts whatever comes until `fd` is connected.
  bool Open(int fd) {
    std::vector<Fd> accepted;
    return Eventually([&] {
      accepted.emplace_back(accept(listener.fd, nullptr, nullptr));
      return (PollOne(fd, POLLOUT, 1) & (POLLOUT | POLLHUP)) == POLLOUT;
    });
  }
};

TEST_CASE("signals: a connect that was interrupted goes on, and the next one waits for it", "[refused]") {
  Handle(0);
  FullListener full;
  Fd client = TcpSocket();
  Interrupted call([&] { return full.Connect(client); });
  REQUIRE(Get(call.result) == -EINTR);
  SetNonblocking(client);
  REQUIRE_ERRNO(full.Connect(client), EALREADY);
  SetNonblocking(client, false);
  auto second = Async([&] { return full.Connect(client); });
  REQUIRE(StillRunning(second));
  REQUIRE(full.Open(client));
  REQUIRE(Get(second) == 0);
  REQUIRE_ERRNO(full.Connect(client), EISCONN);
}

TEST_CASE("signals: SA_RESTART goes on with a connect", "[refused]") {
  Handle(SA_RESTART);
  FullListener full;
  Fd client = TcpSocket();
  Interrupted call([&] { return full.Connect(client); });
  REQUIRE(StillRunning(call.result));
  REQUIRE(full.Open(client));
  REQUIRE(Get(call.result) == 0);
}

// Runs `call` in a thread, cancels it once it sleeps, and says whether that ended it.
template <typename Call>
bool IsCancelled(Call call) {
  struct Shared {
    Call call;
    std::atomic<pid_t> tid{0};
  } shared{call};
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, nullptr,
              [](void* argument) -> void* {
                auto* const s = static_cast<Shared*>(argument);
                s->tid = gettid();
                s->call();
                return nullptr;
              },
              &shared) == 0);
  REQUIRE(Eventually([&] { return shared.tid != 0 && IsAsleep(shared.tid); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(pthread_cancel(thread) == 0);
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kPatienceMs / 1000;
  void* result = nullptr;
  REQUIRE(pthread_timedjoin_np(thread, &result, &until) == 0);
  return result == PTHREAD_CANCELED;
}

TEST_CASE("threads: sleeping calls are cancellation points and leave no lock behind") {
  Pair pair = MakePair();
  Listener listener = Listen();
  char c = 0;
  SECTION("recv") {
    REQUIRE(IsCancelled([&] { recv(pair.server, &c, 1, 0); }));
  }
  SECTION("read") {
    REQUIRE(IsCancelled([&] { read(pair.server, &c, 1); }));
  }
  SECTION("recv with a time-out") {
    const timeval tv{20, 0};
    REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
    REQUIRE(IsCancelled([&] { recv(pair.server, &c, 1, 0); }));
  }
  SECTION("poll") {
    REQUIRE(IsCancelled([&] {
      pollfd p{pair.server, POLLIN, 0};
      poll(&p, 1, -1);
    }));
  }
  SECTION("select") {
    REQUIRE(IsCancelled([&] {
      fd_set set;
      FD_ZERO(&set);
      FD_SET(pair.server, &set);
      select(pair.server + 1, &set, nullptr, nullptr, nullptr);
    }));
  }
  SECTION("epoll_wait") {
    Fd ep(epoll_create1(0));
    epoll_event event{EPOLLIN, {}};
    REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
    REQUIRE(IsCancelled([&] { epoll_wait(ep, &event, 1, -1); }));
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  }
  SECTION("send") {
    SetNonblocking(pair.client);
    const size_t filled = Fill(pair.client);
    SetNonblocking(pair.client, false);
    REQUIRE(IsCancelled([&] { send(pair.client, &c, 1, 0); }));
    REQUIRE(ReceiveExactly(pair.server, filled).size() == filled);
  }
  SECTION("accept") {
    REQUIRE(IsCancelled([&] { accept(listener.fd, nullptr, nullptr); }));
  }
  REQUIRE(SendAll(pair.server, "there"));
  REQUIRE(ReceiveExactly(pair.client, 5) == "there");
  REQUIRE(SendAll(pair.client, "back"));
  REQUIRE(ReceiveExactly(pair.server, 4) == "back");
  Pair next = ConnectTo(listener);
  REQUIRE(SendAll(next.client, "next"));
  REQUIRE(ReceiveExactly(next.server, 4) == "next");
}

TEST_CASE("threads: a connect is a cancellation point, and goes on", "[refused]") {
  FullListener full;
  Fd client = TcpSocket();
  REQUIRE(IsCancelled([&] { full.Connect(client); }));
  REQUIRE(full.Open(client));
}

}  // namespace
}  // namespace posix_test
