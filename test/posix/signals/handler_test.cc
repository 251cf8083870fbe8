// Signal handlers that use the very socket whose call they interrupt, at whatever moment they come, and such
// as do not come back.
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include <chrono>

#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

int the_fd = -1;
volatile sig_atomic_t handled = 0;

void Install(int number, void (*handler)(int), int flags = SA_RESTART) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  REQUIRE(sigaction(number, &action, nullptr) == 0);
}

// SIGALRM every so many microseconds.
void Tick(int us) {
  const itimerval timer{{.tv_sec = 0, .tv_usec = us}, {.tv_sec = 0, .tv_usec = us}};
  REQUIRE(setitimer(ITIMER_REAL, &timer, nullptr) == 0);
}

// Threads inherit it: only one of them is to take SIGALRM.
void MaskAlarm(int how) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  pthread_sigmask(how, &set, nullptr);
}

TEST_CASE("handlers: one that sends on the socket whose sends it interrupts") {
  Pair pair = MakePair();
  the_fd = pair.client;
  handled = 0;
  MaskAlarm(SIG_BLOCK);
  // Records of 8 bytes from both: 'm' and a count from the main flow, "handler!" from the handler.
  auto reader = Async([&] {
    std::string all = ReceiveToEnd(pair.server);
    if (all.size() % 8 != 0) return -1;
    int next = 0;
    int from_handler = 0;
    for (size_t at = 0; at < all.size(); at += 8) {
      if (all.compare(at, 8, "handler!") == 0) {
        ++from_handler;
        continue;
      }
      char expected[16];
      snprintf(expected, sizeof expected, "m%07d", next++);
      if (all.compare(at, 8, expected) != 0) return -2;
    }
    return from_handler;
  });
  Install(SIGALRM, [](int) {
    const int saved = errno;
    if (send(the_fd, "handler!", 8, MSG_NOSIGNAL | MSG_DONTWAIT) == 8) handled = handled + 1;
    errno = saved;
  });
  MaskAlarm(SIG_UNBLOCK);
  Tick(300);
  int n = 0;
  for (Stopwatch watch; watch.ms() < 1500 || handled < 100; ++n) {
    char record[16];
    snprintf(record, sizeof record, "m%07d", n);
    if (send(pair.client, record, 8, 0) != 8) break;
    if (watch.ms() > kPatienceMs) break;
  }
  Tick(0);
  MaskAlarm(SIG_BLOCK);
  const int sent = handled;
  REQUIRE(sent >= 100);
  pair.client.reset();
  REQUIRE(Get(reader) == sent);
}

TEST_CASE("handlers: one that looks at, polls and waits for the socket that it interrupts") {
  if (kUnderAsan)
    return Impossible(
        "a look may need room to receive into, and ASan's allocator, interrupted by the handler, has its "
        "lock taken");
  Pair pair = MakePair();
  static int ep = -1;
  the_fd = pair.server;
  handled = 0;
  Fd set(epoll_create1(0));
  ep = set;
  epoll_event event{EPOLLIN, {}};
  REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) == 0);
  MaskAlarm(SIG_BLOCK);
  auto echo = Async([&] {
    char c;
    while (recv(pair.client, &c, 1, 0) == 1) {
      if (send(pair.client, &c, 1, MSG_NOSIGNAL) != 1) break;
    }
    return true;
  });
  Install(SIGALRM, [](int) {
    const int saved = errno;
    pollfd p{.fd = the_fd, .events = POLLIN, .revents = 0};
    char c;
    epoll_event e;
    poll(&p, 1, 0);
    recv(the_fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    epoll_wait(ep, &e, 1, 0);
    handled = handled + 1;
    errno = saved;
  });
  MaskAlarm(SIG_UNBLOCK);
  Tick(300);
  for (Stopwatch watch; watch.ms() < 1000 || (handled < 100 && watch.ms() < kPatienceMs);) {
    char c = 'x';
    if (send(pair.server, &c, 1, 0) != 1) break;
    epoll_wait(set, &event, 1, kPatienceMs);
    c = 'y';
    if (recv(pair.server, &c, 1, 0) != 1 || c != 'x') break;
  }
  Tick(0);
  MaskAlarm(SIG_BLOCK);
  REQUIRE(handled >= 100);
  shutdown(pair.server, SHUT_WR);
  REQUIRE(Get(echo));
}

TEST_CASE("handlers: one that closes the socket whose call it interrupts") {
  // A process takes long to begin under a sanitizer, on a busy machine: then fewer of them.
  const auto begun = std::chrono::steady_clock::now();
  for (int round = 0;
       round < 200 && (round < 40 || std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
       ++round) {
    const pid_t pid = Child([&] {
      Pair pair = MakePair();
      the_fd = pair.client;
      SetNonblocking(pair.server);
      Install(SIGALRM, [](int) {
        shutdown(the_fd, SHUT_WR);
        close(the_fd);
        _exit(5);
      });
      const itimerval timer{{0, 0}, {.tv_sec = 0, .tv_usec = 200 + round * 7}};
      setitimer(ITIMER_REAL, &timer, nullptr);
      char buffer[256];
      for (;;) {
        (void)!send(pair.client, buffer, 100, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)!recv(pair.server, buffer, sizeof buffer, MSG_DONTWAIT);
      }
      return 0;
    });
    REQUIRE(ExitedWith(Reap(pid), 5));
  }
}

sigjmp_buf jump;

// Whether the alarm's handler jumped out of `call`, rather than that it returned. Apart from the cases, which
// keep values that a jump might lose.
[[gnu::noinline]] bool JumpsOut(int fd, int us, void (*call)(int fd)) {
  if (sigsetjmp(jump, 1) != 0) return true;
  const itimerval timer{{0, 0}, {.tv_sec = 0, .tv_usec = us}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  call(fd);
  return false;
}

void ReceiveByte(int fd) {
  char c;
  (void)!recv(fd, &c, 1, 0);
}

int asked_in_handler = 0;
Address asked;
// All of it POSIX allows in a handler.
void Ask(int) {
  const int error = errno;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  char c = 0;
  if (connect(fd, asked.get(), asked.length) == 0 && send(fd, "?", 1, 0) == 1 && recv(fd, &c, 1, 0) == 1 &&
      c == '!')
    ++asked_in_handler;
  close(fd);
  errno = error;
}

TEST_CASE("handlers: one that makes connections in the middle of malloc", "[mixed]") {
  if (kUnderTsan) return Impossible(why::kChild);
  Listener listener = Listen();
  const pid_t server = Child([&] {
    for (;;) {
      const Fd fd(accept(listener.fd, nullptr, nullptr));
      char c;
      if (recv(fd, &c, 1, 0) == 1 && send(fd, "!", 1, MSG_NOSIGNAL) != 1) return 1;
    }
  });
  const pid_t client = Child([&] {
    asked = listener.address;
    struct sigaction action {};
    action.sa_handler = Ask;
    if (sigaction(SIGALRM, &action, nullptr) != 0) return 1;
    const itimerval often{{0, 1000}, {0, 1000}};
    if (setitimer(ITIMER_REAL, &often, nullptr) != 0) return 2;
    const Stopwatch watch;
    std::vector<void*> blocks(300);
    for (uint32_t i = 1; asked_in_handler < 100 && watch.ms() < kPatienceMs; i = i * 1103515245 + 12345) {
      void*& block = blocks[(i >> 8) % blocks.size()];
      free(block);
      block = malloc(16 + (i >> 16) % 3000);
    }
    return asked_in_handler >= 100 ? 0 : 3;
  });
  const int status = Reap(client);
  kill(server, SIGKILL);
  Reap(server);
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("handlers: one that jumps out of a receive") {
  if (kUnderTsan) return Impossible(why::kHandlerJumps);
  Pair pair = MakePair();
  Install(SIGALRM, [](int) { siglongjmp(jump, 1); });
  for (int round = 0; round < 3; ++round) {
    REQUIRE(JumpsOut(pair.server, 30'000, ReceiveByte));
    REQUIRE(SendAll(pair.client, "again"));
    REQUIRE(ReceiveExactly(pair.server, 5) == "again");
    REQUIRE(SendAll(pair.server, "back"));
    REQUIRE(ReceiveExactly(pair.client, 4) == "back");
  }
}

// From a place below those of the receive that was jumped out of, over which nothing is written.
[[gnu::noinline]] ssize_t ReceiveDeeper(int fd, char* c) {
  volatile char untouched[100'000];
  asm volatile("" : : "r"(untouched) : "memory");
  const ssize_t received = recv(fd, c, 1, 0);
  asm volatile("" : : "r"(untouched) : "memory");
  return received;
}

TEST_CASE("handlers: one that jumps out of a receive, which goes on from a deeper place") {
  if (kUnderTsan) return Impossible(why::kHandlerJumps);
  Pair pair = MakePair();
  Install(SIGALRM, [](int) { siglongjmp(jump, 1); });
  for (int round = 0; round < 3; ++round) {
    REQUIRE(JumpsOut(pair.server, 30'000, ReceiveByte));
    REQUIRE(SendAll(pair.client, "a"));
    char c = 0;
    REQUIRE(ReceiveDeeper(pair.server, &c) == 1);
    REQUIRE(c == 'a');
  }
}

TEST_CASE("handlers: one that jumps out of a large receive and a large send") {
  if (kUnderTsan) return Impossible(why::kHandlerJumps);
  Pair pair = MakePair();
  Install(SIGALRM, [](int) { siglongjmp(jump, 1); });
  static std::vector<char> buffer(4 << 20, '#');
  REQUIRE(JumpsOut(pair.server, 50'000,
                   [](int fd) { (void)!recv(fd, buffer.data(), buffer.size(), MSG_WAITALL); }));
  REQUIRE(SendAll(pair.client, "again"));
  REQUIRE(ReceiveExactly(pair.server, 5) == "again");
  REQUIRE(JumpsOut(pair.client, 50'000, [](int fd) {
    for (;;) (void)!send(fd, buffer.data(), buffer.size(), 0);
  }));
  // What the sends took before the jump comes first.
  auto sender = Async([&] { return SendAll(pair.client, "again"); });
  std::string tail;
  while (tail != "again") {
    const ssize_t n = recv(pair.server, buffer.data(), buffer.size(), 0);
    REQUIRE(n > 0);
    tail = (tail + std::string(buffer.data(), static_cast<size_t>(n)));
    tail = tail.substr(tail.size() - std::min<size_t>(tail.size(), 5));
  }
  REQUIRE(Get(sender));
}

}  // namespace
}  // namespace posix_test
