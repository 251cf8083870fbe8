// Several sleep for one connection, or one sleep interrupts another: each of them is woken.
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

ssize_t ReceiveOne(int fd, char* c, std::atomic<pid_t>* tid) {
  *tid = gettid();
  return recv(fd, c, 1, 0);
}

TEST_CASE("sleepers: an epoll set hears of what comes behind another thread's receive") {
  constexpr int kTurns = 20;
  Pair pair = MakePair();
  Fd ep(epoll_create1(0));
  epoll_event registered{EPOLLIN, {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &registered) == 0);
  for (int turn = 0; turn < kTurns; ++turn) {
    std::atomic<pid_t> waits{0};
    std::atomic<pid_t> receives{0};
    auto set = Async([&] {
      waits = gettid();
      for (epoll_event event{}; epoll_wait(ep, &event, 1, kPatienceMs) == 1;) {
        char c = 0;
        if (recv(pair.server, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && c == 'y') return true;
      }
      return false;
    });
    REQUIRE(Eventually([&] { return waits != 0 && IsAsleep(waits); }));
    char c = 0;
    auto receiver = Async([&] { return ReceiveOne(pair.server, &c, &receives); });
    REQUIRE(Eventually([&] { return receives != 0 && IsAsleep(receives); }));
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(Get(receiver) == 1);
    REQUIRE(c == 'x');
    REQUIRE(Eventually([&] { return IsAsleep(waits); }));
    REQUIRE(SendAll(pair.client, "y"));
    REQUIRE(Get(set));
    REQUIRE(ReceiveExactly(pair.server, 1) == "y");
  }
}

TEST_CASE("sleepers: of two that receive, each gets what comes for it to take") {
  constexpr int kTurns = 20;
  Pair pair = MakePair();
  for (int turn = 0; turn < kTurns; ++turn) {
    std::atomic<pid_t> tids[2] = {0, 0};
    char got[2] = {0, 0};
    std::future<ssize_t> receivers[2];
    for (int i = 0; i < 2; ++i) {
      receivers[i] = Async([&, i] { return ReceiveOne(pair.server, &got[i], &tids[i]); });
      REQUIRE(Eventually([&] { return tids[i] != 0 && IsAsleep(tids[i]); }));
    }
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(Eventually([&] {
      return receivers[0].wait_for(std::chrono::seconds(0)) == std::future_status::ready ||
             receivers[1].wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }));
    REQUIRE(SendAll(pair.client, "y"));
    for (auto& receiver : receivers) REQUIRE(Get(receiver) == 1);
    REQUIRE(got[0] + got[1] == 'x' + 'y');
  }
}

std::atomic<int> handlers_fd{-1};
std::atomic<pid_t> handler_asleep{0};

void ReceiveInHandler(int) {
  const int error = errno;
  char c;
  handler_asleep = gettid();
  if (recv(handlers_fd, &c, 1, 0) == 1) handlers_fd = -1;
  errno = error;
}

TEST_CASE("sleepers: a handler sleeps in a receive, and the receive that it has interrupted goes on") {
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
  const bool data_first = GENERATE(false, true);
  Pair pair = MakePair();
  Pair other = MakePair();
  handlers_fd = other.server;
  handler_asleep = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = ReceiveInHandler;
  action.sa_flags = SA_RESTART;
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  std::atomic<pid_t> tid{0};
  std::atomic<pthread_t> thread{};
  char c = 0;
  auto receiver = Async([&] {
    thread = pthread_self();
    return ReceiveOne(pair.server, &c, &tid);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(pthread_kill(thread, SIGUSR1) == 0);
  REQUIRE(Eventually([&] { return handler_asleep != 0 && IsAsleep(tid); }));
  if (data_first) REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(SendAll(other.client, "h"));
  REQUIRE(Eventually([&] { return handlers_fd == -1; }));
  if (!data_first) REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(receiver) == 1);
  REQUIRE(c == 'x');
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("sleepers: a peer that is killed ends the sleep") {
  RemoteClient remote = ServeClient([](int fd) {
    char c = 'r';
    if (send(fd, &c, 1, 0) != 1) return 1;
    pause();
    return 0;
  });
  REQUIRE(ReceiveExactly(remote.server, 1) == "r");
  std::atomic<pid_t> tid{0};
  char c = 0;
  auto receiver = Async([&] { return ReceiveOne(remote.server, &c, &tid); });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(kill(remote.pid, SIGKILL) == 0);
  REQUIRE(Get(receiver) <= 0);
  REQUIRE(Reap(remote.pid) != 0);
}

}  // namespace
}  // namespace posix_test
