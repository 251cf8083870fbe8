// A signal handler that has interrupted malloc, whose lock is taken then: what POSIX lets a handler do with
// descriptors must not ask for memory.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "test/posix/support.h"
#include "test/support/skipped.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

thread_local bool interrupts = false;  // the next malloc
thread_local bool interrupted = false;
thread_local int asked = 0;  // for memory, or to take it back, meanwhile

}  // namespace

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) noexcept {
  if (interrupted) ++asked;
  if (interrupts) {
    interrupts = false;
    interrupted = true;
    raise(SIGUSR1);
    interrupted = false;
  }
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) noexcept {
  if (interrupted) ++asked;
  return __libc_calloc(count, size);
}

void* aligned_alloc(size_t alignment, size_t size) noexcept {
  if (interrupted) ++asked;
  return __libc_memalign(alignment, size);
}

void free(void* memory) noexcept {
  if (interrupted && memory != nullptr) ++asked;
  __libc_free(memory);
}

}  // extern "C"

namespace posix_test {
namespace {

int the_socket = -1;
int null_device = -1;
volatile sig_atomic_t moved = 0;

// Standard output becomes the socket, for a while and again; the other two do, and a number of no meaning.
void MoveAbout(int) {
  const int other = dup(the_socket);
  if (other < 0 || close(other) != 0) return;
  if (dup2(the_socket, 1) != 1 || dup2(null_device, 1) != 1 || dup2(the_socket, 1) != 1) return;
  if (dup2(the_socket, 0) != 0 || dup2(the_socket, 2) != 2) return;
  moved = 1;
}

TEST_CASE("handlers: one that interrupts malloc makes a socket the standard streams") {
  Pair pair = MakePair();
  fflush(stdout);
  const pid_t pid = Child([&] {
    pair.client.reset();
    the_socket = pair.server;
    null_device = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct sigaction action {};
    action.sa_handler = MoveAbout;
    if (sigaction(SIGUSR1, &action, nullptr) != 0) return 1;
    interrupts = true;
    void* volatile memory = malloc(100);
    free(memory);
    if (moved == 0) return 2;
    if (asked != 0) return 3;
    char word[8];
    if (printf("said ") != 5 || fflush(stdout) != 0 || fputs("at once", stderr) < 0) return 4;
    return fgets(word, sizeof word, stdin) == std::string("heard\n") ? 0 : 5;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "heard\n"));
  REQUIRE(ReceiveToEnd(pair.client) == "said at once");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

constexpr int kConnections = 40;
struct Ends {
  int client = -1;
  int server = -1;
};
Ends ends[kConnections];
volatile sig_atomic_t used = 0;  // of `ends`
volatile sig_atomic_t in_order = 0;
int listening = -1;
Address listening_at;

// None waits for an acknowledgement before it sends.
void MakeConnections() {
  for (Ends& pair : ends) {
    Pair made = MakePair();
    pair = {made.client.release(), made.server.release()};
    SetOption(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
  }
}

bool Passes(int from, int to, size_t size) {
  static char out[40'000];
  static char in[sizeof out];
  if (send(from, out, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) return false;
  pollfd readable{.fd = to, .events = POLLIN, .revents = 0};
  return poll(&readable, 1, kPatienceMs) == 1 &&
         recv(to, in, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

// To the end, or while the connection lasts.
bool Converse(const Ends& pair, bool ends_it) {
  char c = 0;
  for (int i = 0; i < 3; ++i) {
    if (write(pair.client, "abc", 3) != 3) return false;  // several that wait for their reader
  }
  for (int i = 0; i < 9; ++i) {
    if (read(pair.server, &c, 1) != 1) return false;
  }
  for (const size_t size : {1, 3000, 40'000}) {
    if (!Passes(pair.client, pair.server, size) || !Passes(pair.server, pair.client, size)) return false;
  }
  return !ends_it || (shutdown(pair.client, SHUT_WR) == 0 && read(pair.server, &c, 1) == 0 &&
                      close(pair.server) == 0 && close(pair.client) == 0);
}

void UseNext(int) {
  used = used + 1;
  if (Converse(ends[used - 1], true)) in_order = in_order + 1;
}

void ConnectNext(int) {
  Ends& pair = ends[used];
  used = used + 1;
  if (connect(pair.client, listening_at.get(), listening_at.length) != 0) return;
  pair.server = accept(listening, nullptr, nullptr);
  if (pair.server >= 0 && Converse(pair, true)) in_order = in_order + 1;
}

// By a handler that interrupts malloc for each of `ends`.
int InterruptMalloc(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  if (sigaction(SIGUSR1, &action, nullptr) != 0) return 1;
  for (int i = 0; i < kConnections; ++i) {
    interrupts = true;
    void* volatile memory = malloc(100);
    free(memory);
  }
  if (used != kConnections) return 2;
  if (in_order != kConnections) return 3;
  return asked == 0 ? 0 : 4;
}

TEST_CASE("handlers: one that interrupts malloc has the first words with connections") {
  const pid_t pid = Child([] {
    MakeConnections();
    return InterruptMalloc(UseNext);
  });
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

// The process has had a connection, as a process has that handles its clients so.
TEST_CASE("handlers: one that interrupts malloc connects and accepts") {
  const pid_t pid = Child([] {
    Listener listener = Listen();
    listening = listener.fd;
    listening_at = listener.address;
    const Pair before = ConnectTo(listener);
    if (!Converse({before.client, before.server}, false)) return 10;
    for (Ends& pair : ends) {
      pair.client = TcpSocket().release();
      SetOption(pair.client, IPPROTO_TCP, TCP_NODELAY, 1);
    }
    return InterruptMalloc(ConnectNext);
  });
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

void ConverseOften(int) {
  const int error = errno;
  if (Converse(ends[used % kConnections], false)) in_order = in_order + 1;
  used = used + 1;
  errno = error;
}

TEST_CASE("handlers: one that sends and receives wherever malloc and free happen to be") {
  constexpr int kInterruptions = 3000;
  const pid_t pid = Child([] {
    MakeConnections();
    struct sigaction action {};
    action.sa_handler = ConverseOften;
    if (sigaction(SIGALRM, &action, nullptr) != 0) return 1;
    const itimerval often{{0, 300}, {0, 300}};
    if (setitimer(ITIMER_REAL, &often, nullptr) != 0) return 2;
    static void* blocks[300];
    const Stopwatch watch;
    for (uint32_t i = 1; used < kInterruptions && watch.ms() < kPatienceMs / 2; i = i * 1103515245 + 12345) {
      void*& block = blocks[(i >> 8) % std::size(blocks)];
      free(block);
      block = malloc(16 + (i >> 16) % 40'000);
    }
    const itimerval never{};
    if (setitimer(ITIMER_REAL, &never, nullptr) != 0) return 3;
    if (in_order != used) return 4;
    return used > kInterruptions / 10 ? 0 : 5;
  });
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

}  // namespace
}  // namespace posix_test

#else

TEST_CASE("handlers: one that interrupts malloc makes a socket the standard streams") {
  sdp::test::Skipped("a sanitizer's malloc is not to be replaced");
}

TEST_CASE("handlers: one that interrupts malloc has the first words with connections") {
  sdp::test::Skipped("a sanitizer's malloc is not to be replaced");
}

TEST_CASE("handlers: one that interrupts malloc connects and accepts") {
  sdp::test::Skipped("a sanitizer's malloc is not to be replaced");
}

TEST_CASE("handlers: one that sends and receives wherever malloc and free happen to be") {
  sdp::test::Skipped("a sanitizer's malloc is not to be replaced");
}

#endif
