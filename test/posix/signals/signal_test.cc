// Signals that interrupt calls, and handlers that make some.
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <atomic>
#include <thread>

#include "test/posix/full_listener.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

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

// Deprecated, and what old programs know.
void Interrupts(bool on) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  REQUIRE(siginterrupt(SIGUSR1, on ? 1 : 0) == 0);
#pragma GCC diagnostic pop
  struct sigaction now {};
  REQUIRE(sigaction(SIGUSR1, nullptr, &now) == 0);
  if (now.sa_handler == CountSignal) REQUIRE(((now.sa_flags & SA_RESTART) == 0) == on);
}

TEST_CASE("signals: siginterrupt decides what signal does, whichever comes first") {
  if (kUnderTsan)
    return Impossible(
        "TSan holds a handler back until read returns, and restarting is that read does not return");
  const bool by_pipe = GENERATE(false, true);
  CAPTURE(by_pipe);
  Pair pair = MakePair();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Fd reads(by_pipe ? ends[0] : dup(pair.server)), writes(by_pipe ? ends[1] : dup(pair.client));
  char c = 0;
  const auto interrupted = [&] {
    signals_seen = 0;
    Interrupted call([&] { return read(reads, &c, 1); });
    if (!StillRunning(call.result)) return Get(call.result) == -EINTR;
    REQUIRE(write(writes, "x", 1) == 1);
    REQUIRE(Get(call.result) == 1);
    return false;
  };
  REQUIRE(signal(SIGUSR1, SIG_DFL) != SIG_ERR);
  Interrupts(true);
  REQUIRE(signal(SIGUSR1, CountSignal) == SIG_DFL);
  CHECK(interrupted());
  Interrupts(false);
  CHECK_FALSE(interrupted());
  Interrupts(true);
  CHECK(interrupted());
  Interrupts(false);
  REQUIRE(signal(SIGUSR1, CountSignal) == CountSignal);
  CHECK_FALSE(interrupted());
  if (!by_pipe) {
    close(ends[0]);
    close(ends[1]);
  }
}

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
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
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
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
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

TEST_CASE("signals: a handler may call _Fork, and its child end there") {
  static pid_t forked;
  struct sigaction action {};
  action.sa_handler = [](int) {
    forked = _Fork();
    if (forked == 0) _exit(7);
    signals_seen = 1;
  };
  signals_seen = 0;
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  Pair pair = MakePair();
  char c = 0;
  Interrupted call([&] { return recv(pair.server, &c, 1, 0); });
  REQUIRE(Get(call.result) == -EINTR);
  REQUIRE(ExitedWith(Reap(forked), 7));
  REQUIRE(SendAll(pair.client, "to"));
  REQUIRE(ReceiveExactly(pair.server, 2) == "to");
  REQUIRE(SendAll(pair.server, "fro"));
  REQUIRE(ReceiveExactly(pair.client, 3) == "fro");
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

}  // namespace
}  // namespace posix_test
