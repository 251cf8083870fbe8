// Programs that are told by signals: SIGIO of sockets with O_ASYNC, SIGURG of urgent data, F_SETSIG.
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <cctype>
#include <climits>

// Behind sys/ioctl.h, which it needs.
#include <linux/sockios.h>

#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

sigset_t SetOf(int number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  return set;
}

// Held back from here on, to be taken by Take(). Threads that start later have it so, too.
void Hold(int number) {
  const sigset_t set = SetOf(number);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
}

bool Take(int number, siginfo_t* info = nullptr, int ms = kPatienceMs) {
  const sigset_t set = SetOf(number);
  const timespec limit{.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000L};
  return sigtimedwait(&set, info, &limit) == number;
}

void DropPending(int number) {
  while (Take(number, nullptr, 0)) {
  }
}

void Own(int fd, pid_t owner = getpid()) {
  REQUIRE(fcntl(fd, F_SETOWN, owner) == 0);
  REQUIRE(fcntl(fd, F_GETOWN) == owner);
}

void MakeAsync(int fd) { REQUIRE(fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) == 0); }

void SendUrgent(int fd, char c) { REQUIRE(send(fd, &c, 1, MSG_OOB) == 1); }

bool TakeUrgent(int fd, char expected) {
  char c = 0;
  return Eventually([&] { return recv(fd, &c, 1, MSG_OOB | MSG_DONTWAIT) == 1; }) && c == expected;
}

TEST_CASE("owner: SIGIO tells of data, of room and of the end") {
  Pair pair = MakePair();
  Hold(SIGIO);
  Own(pair.server);
  MakeAsync(pair.server);
  for (int round = 0; round < 3; ++round) {
    DropPending(SIGIO);
    REQUIRE(SendAll(pair.client, std::string("data")));
    REQUIRE(Take(SIGIO));
    REQUIRE(ReceiveExactly(pair.server, 4) == "data");
  }
  REQUIRE(Fill(pair.server) > 0);
  DropPending(SIGIO);
  SetNonblocking(pair.client);
  // It wants a good deal of room before it tells.
  REQUIRE(Eventually([&] {
    Drain(pair.client);
    return Take(SIGIO, nullptr, 10);
  }));
  REQUIRE(WaitFor(pair.server, POLLOUT));
  DropPending(SIGIO);
  pair.client.reset();
  REQUIRE(Take(SIGIO));
}

TEST_CASE("owner: F_SETSIG says which descriptor and what") {
  Pair pair = MakePair();
  const int number = SIGRTMIN + 3;
  Hold(number);
  Own(pair.server);
  REQUIRE(fcntl(pair.server, F_SETSIG, number) == 0);
  REQUIRE(fcntl(pair.server, F_GETSIG) == number);
  MakeAsync(pair.server);
  REQUIRE(SendAll(pair.client, std::string("data")));
  siginfo_t info{};
  REQUIRE(Take(number, &info));
  REQUIRE(info.si_fd == pair.server);
  REQUIRE(info.si_code == POLL_IN);
  REQUIRE(ReceiveExactly(pair.server, 4) == "data");
}

TEST_CASE("owner: by ioctl") {
  Pair pair = MakePair();
  Hold(SIGIO);
  const unsigned long set =
      GENERATE(static_cast<unsigned long>(FIOSETOWN), static_cast<unsigned long>(SIOCSPGRP));
  int pid = getpid();
  REQUIRE(ioctl(pair.server, set, &pid) == 0);
  int read_back = 0;
  REQUIRE(ioctl(pair.server, set == FIOSETOWN ? FIOGETOWN : SIOCGPGRP, &read_back) == 0);
  REQUIRE(read_back == pid);
  int on = 1;
  REQUIRE(ioctl(pair.server, FIOASYNC, &on) == 0);
  REQUIRE((fcntl(pair.server, F_GETFL) & O_ASYNC) != 0);
  REQUIRE(SendAll(pair.client, std::string("data")));
  REQUIRE(Take(SIGIO));
  on = 0;
  REQUIRE(ioctl(pair.server, FIOASYNC, &on) == 0);
  REQUIRE((fcntl(pair.server, F_GETFL) & O_ASYNC) == 0);
  REQUIRE(ReceiveExactly(pair.server, 4) == "data");
}

TEST_CASE("owner: SIGURG tells of urgent data, whatever the program does") {
  Pair pair = MakePair();
  Hold(SIGURG);
  Own(pair.server);
  for (const char c : {'1', '2', '3'}) {
    SendUrgent(pair.client, c);
    REQUIRE(Take(SIGURG));
    REQUIRE(TakeUrgent(pair.server, c));
  }
  REQUIRE(!Take(SIGURG, nullptr, kQuietMs));
}

TEST_CASE("owner: SIGURG while a thread sleeps in a receive, and a child has the connection, too") {
  Pair pair = MakePair();
  Hold(SIGURG);
  Own(pair.server);
  std::atomic<pid_t> tid{0};
  auto sleeper = Async([&] {
    tid = gettid();
    return ReceiveExactly(pair.server, 3);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Fd waits(ends[0]), tells(ends[1]);
  pid_t child = -1;
  for (const char c : {'1', '2', '3'}) {
    SendUrgent(pair.client, c);
    REQUIRE(Take(SIGURG));
    REQUIRE(TakeUrgent(pair.server, c));
    if (child >= 0) continue;
    child = Child([&] {
      tells.reset();
      pair.client.reset();
      char byte;
      return read(waits, &byte, 1) == 0 ? 0 : 1;
    });
  }
  REQUIRE(!Take(SIGURG, nullptr, kQuietMs));
  REQUIRE(SendAll(pair.client, "end"));
  REQUIRE(Get(sleeper) == "end");
  tells.reset();
  REQUIRE(ExitedWith(Reap(child), 0));
}

int urgent_fd = -1;
std::atomic<int> urgent_heard{0};

// As the manuals have it: the handler takes the byte.
void OnUrgent(int) {
  const int saved = errno;
  char c = 0;
  if (recv(urgent_fd, &c, 1, MSG_OOB | MSG_DONTWAIT) == 1 && std::isdigit(c) != 0)
    urgent_heard = urgent_heard + 1;
  errno = saved;
}

void Handle(int number, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  REQUIRE(sigaction(number, &action, nullptr) == 0);
}

TEST_CASE("owner: a program that computes, and takes urgent bytes in its handler") {
  Pair pair = MakePair();
  urgent_fd = pair.server;
  urgent_heard = 0;
  Handle(SIGURG, OnUrgent, SA_RESTART);
  Own(pair.server);
  for (int n = 1; n <= 5; ++n) {
    SendUrgent(pair.client, static_cast<char>('0' + n));
    // No call on the socket: the signal must come by itself.
    REQUIRE(Eventually([&] { return urgent_heard == n; }));
  }
}

TEST_CASE("owner: SIGURG in a blocked receive") {
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
  Pair pair = MakePair();
  urgent_fd = pair.server;
  urgent_heard = 0;
  const bool restart = GENERATE(false, true);
  Handle(SIGURG, OnUrgent, restart ? SA_RESTART : 0);
  Own(pair.server);
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  auto sender = Async([&] {
    const sigset_t set = SetOf(SIGURG);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    const bool heard = Eventually([&] { return IsAsleep(self); }) &&
                       send(pair.client, "7", 1, MSG_OOB) == 1 &&
                       Eventually([] { return urgent_heard == 1; });
    // Whatever came of it: a receive that goes on ends with these.
    return SendAll(pair.client, std::string("data")) && heard;
  });
  char buffer[8];
  ssize_t n = recv(pair.server, buffer, sizeof buffer, 0);
  if (restart) {
    REQUIRE(n > 0);
  } else {
    REQUIRE(n == -1);
    REQUIRE(errno == EINTR);
    REQUIRE(urgent_heard == 1);
    n = recv(pair.server, buffer, sizeof buffer, 0);
  }
  REQUIRE(Get(sender));
  REQUIRE(n > 0);
}

TEST_CASE("owner: without one there is no SIGURG") {
  Pair pair = MakePair();
  Hold(SIGURG);
  SendUrgent(pair.client, '1');
  REQUIRE(WaitFor(pair.server, POLLPRI));
  REQUIRE(TakeUrgent(pair.server, '1'));
  REQUIRE(!Take(SIGURG, nullptr, kQuietMs));
  // Set, and taken back.
  Own(pair.server);
  Own(pair.server, 0);
  SendUrgent(pair.client, '2');
  REQUIRE(TakeUrgent(pair.server, '2'));
  REQUIRE(!Take(SIGURG, nullptr, kQuietMs));
}

TEST_CASE("owner: a thread, another process, a process group") {
  Pair pair = MakePair();
  Hold(SIGURG);
  SECTION("a thread") {
    const f_owner_ex owner{.type = F_OWNER_TID, .pid = static_cast<pid_t>(syscall(SYS_gettid))};
    REQUIRE(fcntl(pair.server, F_SETOWN_EX, &owner) == 0);
    f_owner_ex read_back{};
    REQUIRE(fcntl(pair.server, F_GETOWN_EX, &read_back) == 0);
    REQUIRE(read_back.pid == owner.pid);
    SendUrgent(pair.client, '1');
    REQUIRE(Take(SIGURG));
  }
  SECTION("another process") {
    const bool group = GENERATE(false, true);
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t pid = Child([&] {
      // The connection is the parent's.
      pair.client.reset();
      pair.server.reset();
      if (setpgid(0, 0) != 0 || write(ready[1], "r", 1) != 1) return 2;
      return Take(SIGURG) ? 0 : 1;
    });
    char c;
    REQUIRE(read(ready[0], &c, 1) == 1);
    Own(pair.server, group ? -pid : pid);
    SendUrgent(pair.client, '1');
    REQUIRE(ExitedWith(Reap(pid), 0));
    close(ready[0]);
    close(ready[1]);
  }
}

TEST_CASE("owner: set before the connection is there") {
  Hold(SIGURG);
  Listener listener = Listen();
  Fd client = TcpSocket();
  Own(client);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(fcntl(server, F_GETOWN) == 0);
  SendUrgent(server, '1');
  REQUIRE(Take(SIGURG));
  REQUIRE(TakeUrgent(client, '1'));
}

TEST_CASE("owner: SIGIO of a listener brings each connection") {
  Hold(SIGIO);
  Listener listener = Listen();
  Own(listener.fd);
  MakeAsync(listener.fd);
  for (int round = 0; round < 3; ++round) {
    auto client = Async([&] {
      Fd fd(socket(AF_INET, SOCK_STREAM, 0));
      if (connect(fd, listener.address.get(), listener.address.length) != 0) return std::string("connect");
      return ReceiveExactly(fd, 5);
    });
    Fd server;
    // Nothing else tells: no accept is tried without a signal.
    while (server < 0) {
      REQUIRE(Take(SIGIO));
      server.reset(accept(listener.fd, nullptr, nullptr));
      if (server < 0) REQUIRE(errno == EAGAIN);
    }
    REQUIRE((fcntl(server, F_GETFL) & O_ASYNC) == 0);
    REQUIRE(fcntl(server, F_GETOWN) == 0);
    REQUIRE(SendAll(server, std::string("hello")));
    REQUIRE(Get(client) == "hello");
  }
}

}  // namespace
}  // namespace posix_test
