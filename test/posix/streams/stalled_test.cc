// A peer that does nothing in the middle of a large transfer: calls return as they would on TCP, and the
// connection lives on.
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

// More than TCP ever buffers at both ends: who writes it waits for its reader.
constexpr size_t kMuch = 14 * kMiB;

// A process that runs `body` on its end of a connection, and can be stopped.
struct Remote {
  pid_t pid = -1;
  Fd fd;
  explicit Remote(const std::function<int(int)>& body) {
    RemoteClient client = ServeClient(body);
    pid = client.pid;
    fd = std::move(client.server);
  }
  void Stop() {
    REQUIRE(kill(pid, SIGSTOP) == 0);
    int status;
    REQUIRE(waitpid(pid, &status, WUNTRACED) == pid);
    REQUIRE(WIFSTOPPED(status));
  }
  void Continue() { REQUIRE(kill(pid, SIGCONT) == 0); }
  ~Remote() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
};

TEST_CASE("stalled: a receive with a time-out from a writer that is stopped") {
  const std::string data = Pattern(kMuch);
  Remote writer([&](int fd) { return SendAll(fd, data) && shutdown(fd, SHUT_WR) == 0 ? 0 : 1; });
  REQUIRE(WaitFor(writer.fd, POLLIN));
  // The first bytes are gone, what comes next is on offer.
  std::string all = ReceiveExactly(writer.fd, kMiB);
  writer.Stop();
  SetTimeout(writer.fd, SO_RCVTIMEO, 200);
  std::vector<char> buffer(4 * kMiB);
  Stopwatch watch;
  for (;;) {
    const ssize_t n = recv(writer.fd, buffer.data(), buffer.size(), 0);
    if (n <= 0) {
      REQUIRE(n == -1);
      REQUIRE(errno == EAGAIN);
      break;
    }
    all.append(buffer.data(), static_cast<size_t>(n));
  }
  REQUIRE(watch.ms() < kAtOnceMs);
  writer.Continue();
  SetTimeout(writer.fd, SO_RCVTIMEO, kPatienceMs);
  all += ReceiveToEnd(writer.fd);
  REQUIRE(all.size() == data.size());
  REQUIRE(Hash(all) == Hash(data));
}

TEST_CASE("stalled: a receive that has begun to take what a stopped writer offers gives up in time") {
  const std::string data = Pattern(kMuch);
  Remote writer([&](int fd) { return SendAll(fd, data) && shutdown(fd, SHUT_WR) == 0 ? 0 : 1; });
  REQUIRE(WaitFor(writer.fd, POLLIN));
  writer.Stop();
  SetTimeout(writer.fd, SO_RCVTIMEO, 200);
  std::vector<char> buffer(4 * kMiB, '#');
  Stopwatch watch;
  std::string all;
  for (ssize_t n; (n = recv(writer.fd, buffer.data(), buffer.size(), 0)) > 0;)
    all.append(buffer.data(), static_cast<size_t>(n));
  REQUIRE(errno == EAGAIN);
  REQUIRE(watch.ms() < kAtOnceMs);
  // What comes later comes elsewhere.
  std::fill(buffer.begin(), buffer.end(), '#');
  writer.Continue();
  SetTimeout(writer.fd, SO_RCVTIMEO, kPatienceMs);
  all += ReceiveToEnd(writer.fd);
  REQUIRE(all.size() == data.size());
  REQUIRE(Hash(all) == Hash(data));
  REQUIRE(std::count(buffer.begin(), buffer.end(), '#') == static_cast<ssize_t>(buffer.size()));
}

std::atomic<int> seen{0};

TEST_CASE("stalled: a signal ends a receive from a writer that is stopped") {
  struct sigaction action {};
  action.sa_handler = [](int) { ++seen; };
  REQUIRE(sigaction(SIGUSR1, &action, nullptr) == 0);
  const std::string data = Pattern(kMuch);
  Remote writer([&](int fd) { return SendAll(fd, data) && shutdown(fd, SHUT_WR) == 0 ? 0 : 1; });
  REQUIRE(WaitFor(writer.fd, POLLIN));
  std::string all = ReceiveExactly(writer.fd, kMiB);
  writer.Stop();
  std::vector<char> buffer(32 * kMiB);
  std::atomic<pid_t> tid{0};
  std::atomic<pthread_t> thread{};
  std::atomic<bool> done{false};
  auto receiver = Async([&] {
    thread = pthread_self();
    tid = gettid();
    const ssize_t n = recv(writer.fd, buffer.data(), buffer.size(), MSG_WAITALL);
    const int error = errno;
    done = true;
    return std::pair(n, error);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  Stopwatch watch;
  REQUIRE(Eventually([&] {
    if (!done) pthread_kill(thread, SIGUSR1);
    return done.load();
  }));
  REQUIRE(watch.ms() < kAtOnceMs);
  const auto [n, error] = Get(receiver);
  if (n > 0) {
    all.append(buffer.data(), static_cast<size_t>(n));
  } else {
    REQUIRE(n == -1);
    REQUIRE(error == EINTR);
  }
  std::fill(buffer.begin(), buffer.end(), '#');
  writer.Continue();
  all += ReceiveToEnd(writer.fd);
  REQUIRE(all.size() == data.size());
  REQUIRE(Hash(all) == Hash(data));
  // What came later came elsewhere.
  REQUIRE(std::count(buffer.begin(), buffer.end(), '#') == static_cast<ssize_t>(buffer.size()));
}

TEST_CASE("stalled: a little behind much does not wait for the reader") {
  Pair pair = MakePair();
  const std::string much = Pattern(700'000, 1);
  const std::string little = Pattern(100, 2);
  auto other = Async([&] { return SendAll(pair.server, much) && SendAll(pair.server, little); });
  auto one = Async([&] { return SendAll(pair.client, much) && SendAll(pair.client, little); });
  REQUIRE(Get(one));
  REQUIRE(Get(other));
  REQUIRE(ReceiveExactly(pair.client, much.size() + 100) == much + little);
  REQUIRE(ReceiveExactly(pair.server, much.size() + 100) == much + little);
}

TEST_CASE("stalled: urgent data behind much that nobody reads") {
  Pair pair = MakePair();
  const std::string much = Pattern(700'000, 1);
  auto sender = Async([&] { return SendAll(pair.client, much) && send(pair.client, "!", 1, MSG_OOB) == 1; });
  REQUIRE(Get(sender));
  REQUIRE(ReceiveExactly(pair.server, much.size()) == much);
  char c = 0;
  REQUIRE(Eventually([&] { return recv(pair.server, &c, 1, MSG_OOB) == 1; }));
  REQUIRE(c == '!');
}

TEST_CASE("stalled: a writer whose reader does nothing uses no processor time") {
  Remote reader([](int) {
    pause();
    return 0;
  });
  const std::string data = Pattern(64 * kMiB);
  auto sender = Async([&] { return send(reader.fd, data.data(), data.size(), MSG_NOSIGNAL); });
  const auto used_ms = [&] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto ms = [](const timeval& t) { return t.tv_sec * 1000 + t.tv_usec / 1000; };
    return ms(usage.ru_utime) + ms(usage.ru_stime);
  };
  REQUIRE(StillRunning(sender, 300));
  // On a busy machine the writer may not have come to rest before.
  REQUIRE(OnceWithin(50, [&] {
    const auto before = used_ms();
    REQUIRE(StillRunning(sender, 1000));
    return used_ms() - before;
  }));
  kill(reader.pid, SIGKILL);
  REQUIRE(Get(sender) < static_cast<ssize_t>(data.size()));
}

// Says that exit() is under way, before the library's own end.
int exit_pipe[2];

TEST_CASE("stalled: a writer that exits while another of its threads reads") {
  const std::string data = Pattern(700'000);
  Listener listener = Listen();
  REQUIRE(pipe(exit_pipe) == 0);
  const pid_t pid = Child([&]() -> int {
    const Fd end(socket(AF_INET, SOCK_STREAM, 0));
    if (connect(end, listener.address.get(), listener.address.length) != 0) return 100;
    static std::atomic<pid_t> tid{0};
    std::thread([&] {
      tid = gettid();
      char c;
      (void)!read(end, &c, 1);
      pause();
    }).detach();
    if (!Eventually([] { return tid != 0 && IsAsleep(tid); })) return 101;
    const bool sent = SendAll(end, data);
    std::atexit([] { (void)!write(exit_pipe[1], "x", 1); });
    exit(sent ? 0 : 1);
  });
  const Fd in(exit_pipe[0]), out(exit_pipe[1]);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(WaitFor(in, POLLIN));
  const std::string got = ReceiveToEnd(server);
  REQUIRE(got.size() == data.size());
  REQUIRE(Hash(got) == Hash(data));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("stalled: SHUT_WR from another thread in the middle of a large write: the count is exact") {
  Pair pair = MakePair();
  const std::string data = Pattern(64 * kMiB);
  auto sender = Async([&] { return send(pair.client, data.data(), data.size(), MSG_NOSIGNAL); });
  REQUIRE(StillRunning(sender));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  const std::string got = ReceiveToEnd(pair.server);
  const ssize_t sent = Get(sender);
  REQUIRE(sent < static_cast<ssize_t>(data.size()));
  if (sent > 0) REQUIRE(got.size() == static_cast<size_t>(sent));
  REQUIRE(Hash(got) == Hash(data.substr(0, got.size())));
}

TEST_CASE("stalled: fork in the middle of a large write") {
  Pair pair = MakePair();
  const std::string data = Pattern(16 * kMiB);
  auto sender = Async([&] { return SendAll(pair.client, data); });
  REQUIRE(StillRunning(sender));
  REQUIRE(ExitedWith(Reap(Child([] { return 0; })), 0));
  auto receiver = Async([&] { return ReceiveExactly(pair.server, data.size()); });
  REQUIRE(Hash(Get(receiver)) == Hash(data));
  REQUIRE(Get(sender));
}

// A thread asleep in a receive on a socket with as much unsent as its peer, which takes nothing, leaves
// there; then the socket is shut down.
struct ShutDown {
  Pair pair = MakePair();
  size_t sent = 0;
  std::atomic<pid_t> tid{0};
  std::future<ssize_t> sleeper;

  ShutDown() {
    SetNonblocking(pair.client);
    sent = Fill(pair.client);
    SetNonblocking(pair.client, false);
    sleeper = Async([this] {
      tid = gettid();
      char c;
      return recv(pair.client, &c, 1, 0);
    });
    REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
    REQUIRE(shutdown(pair.client, SHUT_RDWR) == 0);
  }
};

TEST_CASE("stalled: SHUT_RDWR of a socket with unsent bytes ends a sleeping receive at once") {
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
  ShutDown socket;
  const bool ended = !StillRunning(socket.sleeper, 3000);
  // A reader left asleep would keep the whole case from its end.
  ReceiveToEnd(socket.pair.server);
  REQUIRE(ended);
  REQUIRE(Get(socket.sleeper) == 0);
}

TEST_CASE(
    "stalled: what is unsent when SHUT_RDWR comes over a sleeping receive arrives, and the receive ends") {
  ShutDown socket;
  REQUIRE(ReceiveToEnd(socket.pair.server).size() == socket.sent);
  REQUIRE(Get(socket.sleeper) == 0);
}

}  // namespace
}  // namespace posix_test
