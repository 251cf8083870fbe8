// What costs nothing while nothing happens.
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

// How often the threads of this process, but for the caller, have gone to sleep.
int Sleeps() {
  int total = 0;
  DIR* const tasks = opendir("/proc/self/task");
  REQUIRE(tasks != nullptr);
  while (const dirent* const task = readdir(tasks)) {
    const std::string name = task->d_name;
    if (name[0] == '.' || name == std::to_string(gettid())) continue;
    std::ifstream status("/proc/self/task/" + name + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("voluntary_ctxt_switches:", 0) == 0) total += std::stoi(line.substr(line.find(':') + 1));
    }
  }
  closedir(tasks);
  return total;
}

// Over a second in which `call` does not return.
template <typename T>
double SleepsASecond(std::future<T>& call) {
  const int before = Sleeps();
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(StillRunning(call, 1000));
  const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begun;
  return (Sleeps() - before) / lasted.count();
}

TEST_CASE(
    "fork: a connection that is closed under a sleeping receive, and open in a child, costs no processor "
    "time") {
  if (kUnderTsan)
    return Impossible(
        "TSan reports such a close, whatever becomes of it, and has a thread of its own that wakes");
  Pair pair = MakePair();
  std::atomic<pid_t> tid{0};
  auto sleeper = Async([&, fd = pair.server.get()] {
    tid = gettid();
    char c;
    return recv(fd, &c, 1, 0);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  Pipe over;
  const pid_t pid = Fork([&] {
    over.out.reset();
    pair.client.reset();
    return over.HearEnd() ? 0 : 1;
  });
  pair.server.reset();
  REQUIRE(StillRunning(sleeper));
  REQUIRE(SleepsASecond(sleeper) < 15);
  REQUIRE(SendAll(pair.client, "x"));
  Get(sleeper);
  over.out.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// Long enough for whatever happens behind the back of a program that makes no call.
void MakeNoCall() {
  Pipe nobody_tells;
  REQUIRE(PollOne(nobody_tells.in, POLLIN, 2000) == 0);
}

TEST_CASE("idle: a connection that was used and is not any more wakes no thread") {
  if (kUnderTsan) return Impossible("TSan has a thread of its own that wakes");
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
  Pipe nobody_tells;
  REQUIRE(Eventually([&] {
    const int before = Sleeps();
    return PollOne(nobody_tells.in, POLLIN, 3000) == 0 && Sleeps() == before;
  }));
  REQUIRE(SendAll(pair.client, "y"));
  REQUIRE(ReceiveExactly(pair.server, 1) == "y");
}

TEST_CASE("idle: what came while nobody called is there, and told by edge once") {
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.fd = pair.server}};
  REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(SendAll(pair.client, "abc"));
  MakeNoCall();
  REQUIRE(epoll_wait(epoll, &event, 1, kPatienceMs) == 1);
  CHECK((event.events & (EPOLLIN | EPOLLRDHUP)) == EPOLLIN);
  CHECK(epoll_wait(epoll, &event, 1, kQuietMs) == 0);
  int bytes = 0;
  REQUIRE(ioctl(pair.server, FIONREAD, &bytes) == 0);
  CHECK(bytes == 3);
  pair.client.reset();
  MakeNoCall();
  REQUIRE(epoll_wait(epoll, &event, 1, kPatienceMs) == 1);
  CHECK((event.events & EPOLLRDHUP) != 0);
  CHECK(ReceiveToEnd(pair.server) == "abc");
}

TEST_CASE("idle: bytes that nobody read reset the connection at close, however long they lay there") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "nobody reads this"));
  MakeNoCall();
  pair.server.reset();
  char c;
  REQUIRE_ERRNO(recv(pair.client, &c, 1, 0), ECONNRESET);
}

TEST_CASE("idle: a writer of small records that sleeps for want of room costs no processor time") {
  if (kUnderTsan) return Impossible("TSan has a thread of its own that wakes");
  Pair pair = MakePair();
  std::atomic<pid_t> tid{0};
  std::atomic<size_t> written{0};
  auto writer = Async([&] {
    tid = gettid();
    const char record[100] = {};
    ssize_t sent;
    while ((sent = send(pair.client, record, sizeof record, MSG_NOSIGNAL)) > 0)
      written += static_cast<size_t>(sent);
    return errno;
  });
  // Asleep, and no further a while later.
  REQUIRE(Eventually([&] {
    const size_t before = written;
    return tid != 0 && IsAsleep(tid) && StillRunning(writer) && IsAsleep(tid) && written == before;
  }));
  CHECK(SleepsASecond(writer) < 50);
  pair.server.reset();
  Get(writer);
}

TEST_CASE("idle: a writer whose reader makes no call for a while loses nothing") {
  Pair pair = MakePair();
  const std::string data = Pattern(8 << 20);
  auto writer = Async([&] { return SendAll(pair.client, data); });
  MakeNoCall();
  CHECK(ReceiveExactly(pair.server, data.size()) == data);
  CHECK(Get(writer));
  MakeNoCall();
  REQUIRE(SendAll(pair.server, "back"));
  CHECK(ReceiveExactly(pair.client, 4) == "back");
}

TEST_CASE("idle: parent and child, one of which makes no call, each have what is theirs") {
  Pair pair = MakePair();
  Pipe go, over;
  const pid_t pid = Fork([&] {
    pair.client.reset();
    if (!go.Hear()) return 1;
    return ReceiveExactly(pair.server, 3) == "abc" && SendAll(pair.server, "seen") ? 0 : 2;
  });
  REQUIRE(SendAll(pair.client, "abc"));
  MakeNoCall();
  go.Tell();
  CHECK(ReceiveExactly(pair.client, 4) == "seen");
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(SendAll(pair.client, "mine"));
  MakeNoCall();
  CHECK(ReceiveExactly(pair.server, 4) == "mine");
}

TEST_CASE("idle: the process ends when its main thread has gone, and then its last one") {
  Listener listener = Listen();
  const pid_t pid = Fork([&] {
    Fd server(accept(listener.fd, nullptr, nullptr));
    std::thread([fd = server.release()] {
      char c;
      while (recv(fd, &c, 1, 0) == 1 && send(fd, &c, 1, MSG_NOSIGNAL) == 1) {
      }
    }).detach();
    syscall(SYS_exit, 0);  // pthread_exit would unwind the stack of the test runner
    return 1;
  });
  Fd client = Connected(listener);
  REQUIRE(SendAll(client, "x"));
  REQUIRE(ReceiveExactly(client, 1) == "x");
  MakeNoCall();
  REQUIRE(SendAll(client, "y"));
  REQUIRE(ReceiveExactly(client, 1) == "y");
  client.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
