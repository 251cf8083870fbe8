// Processes that end with something said and not yet heard.
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "test/posix/processes.h"

// companions/farewell.cc: what its destructor calls.
extern "C" void PosixTestSetFarewell(void (*function)());

namespace posix_test {
namespace {

TEST_CASE("process: exit without close delivers everything") {
  Listener listener = Listen();
  const size_t size = GENERATE(10u, 500'000u, 64u << 20);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, listener.address.get(), listener.address.length) != 0) _exit(1);
    const std::string data = Pattern(size);
    // The descriptor is left open for exit() to find, as by a program that returns from main.
    exit(SendAll(fd, data) ? 0 : 2);
  }
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  const std::string got = ReceiveToEnd(server);
  REQUIRE(got.size() == size);
  REQUIRE(Hash(got) == Hash(Pattern(size)));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE(
    "process: exit with two connections delivers everything to whoever reads one to its end before the "
    "other") {
  const bool by_exit = GENERATE(true, false), later_first = GENERATE(true, false);
  Listener listener = Listen();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Fd told(ends[0]), tells(ends[1]);
  const pid_t pid = Child([&] {
    size_t sent[2];
    for (size_t& size : sent) {
      const int fd = TcpSocket().release();
      if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
      SetNonblocking(fd);
      size = Fill(fd);
    }
    if (write(tells, sent, sizeof sent) != sizeof sent) return 2;
    if (by_exit) exit(0);
    return 0;
  });
  Fd servers[2];
  for (Fd& server : servers) {
    REQUIRE(WaitFor(listener.fd, POLLIN));
    server.reset(accept(listener.fd, nullptr, nullptr));
  }
  size_t sent[2];
  REQUIRE(read(told, sent, sizeof sent) == sizeof sent);
  for (const size_t i : {later_first ? 1 : 0, later_first ? 0 : 1}) {
    CAPTURE(i);
    REQUIRE(sent[i] > 100'000);
    REQUIRE(ReceiveToEnd(servers[i]).size() == sent[i]);
  }
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("process: exit with both ends of a connection that nobody reads does not take long") {
  const size_t size = GENERATE(60'000, 150'000);
  const Stopwatch watch;
  const pid_t pid = Child([&] {
    Pair pair = MakePair();
    SetNonblocking(pair.client);
    const std::string data = Pattern(size);
    if (send(pair.client, data.data(), size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) return 1;
    exit(0);
    return 2;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(watch.ms() < 4000);  // over SDP exit waits up to 5 s for a peer elsewhere
}

// With bytes that nobody reads: over TCP they are the kernel's, and the process is gone by then.
TEST_CASE(
    "process: a signal that comes while the process waits for its peer at its end does not make it wait "
    "anew") {
  constexpr int kFirstMs = 3500, kLongestMs = 7000;  // the library waits 5 s
  REQUIRE(OnceWithin(kLongestMs, [] {
    Listener listener = Listen();
    static Pipe* told;
    Pipe pipe;
    told = &pipe;
    const pid_t pid = Child([&] {
      signal(SIGTERM, SIG_DFL);
      const int fd = TcpSocket().release();
      if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
      SetNonblocking(fd);
      if (Fill(fd) == 0 || atexit([] { (void)!write(told->out, "x", 1); }) != 0) return 2;
      exit(0);
    });
    pipe.out.reset();
    REQUIRE(WaitFor(listener.fd, POLLIN));
    const Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(pipe.Hear());
    const Stopwatch watch;
    if (!WaitFor(pipe.in, POLLHUP, kFirstMs)) REQUIRE(kill(pid, SIGTERM) == 0);
    REQUIRE(Reap(pid) >= 0);
    return watch.ms();
  }));
}

TEST_CASE("process: exit while another thread sends is no death by SIGPIPE") {
  Listener listener = Listen();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Fd told(ends[0]), tells(ends[1]);
  const pid_t pid = Child([&] {
    signal(SIGPIPE, SIG_DFL);
    const int fd = TcpSocket().release();
    if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
    SetNonblocking(fd);
    std::atomic<bool> full{false};
    std::thread([&full, fd] {
      const std::string block = Pattern(10'000);
      for (;;) {
        if (send(fd, block.data(), block.size(), 0) > 0) continue;
        full = true;
        sched_yield();
      }
    }).detach();
    if (!Eventually([&] { return full.load(); }) || write(tells, "!", 1) != 1) return 2;
    exit(0);
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  char c;
  REQUIRE(read(told, &c, 1) == 1);
  // Over SDP it waits for us, and the other thread still tries. Over TCP it is gone by now.
  Stopwatch watch;
  siginfo_t info{};
  while (info.si_pid == 0 && watch.ms() < kQuietMs)
    REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0);
  REQUIRE(ReceiveToEnd(server).size() >= 100'000);
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("process: _exit after a small write delivers it") {
  Listener listener = Listen();
  const pid_t pid = Child([&] {
    const int fd = TcpSocket().release();
    if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
    return SendAll(fd, "last words") ? 0 : 2;
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(ReceiveToEnd(server) == "last words");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// The ways to end that run something of the program's own, which has the last word. It takes no argument.
int last_fd = -1;
void SayLast() { SendAll(last_fd, Pattern(300'000, 2)); }

struct WayToEnd {
  const char* name;
  void (*end)();
  int status;
};

const WayToEnd kWaysToEnd[] = {
    {"exit, by a function registered with atexit", [] { atexit(SayLast), exit(5); }, 5},
    {"exit, by one registered with on_exit", [] { on_exit([](int, void*) { SayLast(); }, nullptr), exit(5); },
     5},
    {"exit, by a static object",
     [] {
       static struct Speaker {
         ~Speaker() { SayLast(); }
       } speaker;
       exit(5);
     },
     5},
    {"exit, by a shared object's destructor", [] { PosixTestSetFarewell(SayLast), exit(5); }, 5},
    {"the same, of a process whose threads have slept",
     [] {
       std::thread([] {}).join();
       char c;
       SetTimeout(last_fd, SO_RCVTIMEO, 5);
       (void)recv(last_fd, &c, 1, 0);
       PosixTestSetFarewell(SayLast), exit(5);
     },
     5},
    {"exit, which writes out a stream",
     [] {
       FILE* const stream = fdopen(last_fd, "w");
       const std::string last = Pattern(300'000, 2);
       setvbuf(stream, nullptr, _IOFBF, 400'000);
       fwrite(last.data(), 1, last.size(), stream);
       exit(5);
     },
     5},
    {"exit in another thread", [] { std::thread([] { SayLast(), exit(5); }).join(); }, 5},
    {"quick_exit", [] { at_quick_exit(SayLast), quick_exit(5); }, 5},
    {"_Exit behind a thread's end, by an object of its own",
     [] {
       std::thread([] {
         static thread_local struct Speaker {
           bool speaks = false;
           ~Speaker() {
             if (speaks) SayLast();
           }
         } speaker;
         speaker.speaks = true;
       }).join();
       _Exit(5);
     },
     5},
};

TEST_CASE("process: whoever has the last word is heard, and all that was said before") {
  for (const WayToEnd& way : kWaysToEnd) {
    for (const size_t size : {size_t{10}, size_t{2} << 20}) {
      CAPTURE(way.name, size);
      Listener listener = Listen();
      const pid_t pid = Child([&] {
        last_fd = TcpSocket().release();
        if (connect(last_fd, listener.address.get(), listener.address.length) != 0 ||
            !SendAll(last_fd, Pattern(size)))
          return 1;
        way.end();
        return 2;
      });
      REQUIRE(WaitFor(listener.fd, POLLIN));
      Fd server(accept(listener.fd, nullptr, nullptr));
      const std::string got = ReceiveToEnd(server);
      REQUIRE(got.size() == size + 300'000);
      REQUIRE(Hash(got) == Hash(Pattern(size) + Pattern(300'000, 2)));
      REQUIRE(ExitedWith(Reap(pid), way.status));
    }
  }
}

TEST_CASE("process: _exit in a signal handler ends the process at whatever moment it comes") {
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = Child([&] {
      signal(SIGALRM, [](int) { _exit(5); });
      const itimerval soon{{0, 0}, {0, 10'000 + i * 1'300}};
      Pair pair = MakePair();
      SetNonblocking(pair.server);
      setitimer(ITIMER_REAL, &soon, nullptr);
      for (;;) {
        if (!SendAll(pair.client, "some bytes")) return 1;
        Drain(pair.server);
      }
    });
    REQUIRE(ExitedWith(Reap(pid), 5));
  }
}

TEST_CASE("process: exit right after a close delivers everything") {
  Listener listener = Listen();
  const pid_t pid = Child([&] {
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    SetNonblocking(client);
    const size_t sent = Fill(client);
    client.reset();
    exit(sent > 0 ? 0 : 2);
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  errno = 0;
  const std::string got = ReceiveToEnd(server);
  REQUIRE(got.size() > 100'000);
  REQUIRE(got.substr(0, 16 * 1024) == Pattern(16 * 1024));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("process: exit with something unread, or a linger time of zero, resets as close does", "[abort]") {
  const bool by_exit = GENERATE(true, false), unread = GENERATE(true, false);
  Listener listener = Listen();
  const pid_t pid = Fork([&] {
    Fd server(accept(listener.fd, nullptr, nullptr));
    const linger none{.l_onoff = 1, .l_linger = 0};
    if (!unread && setsockopt(server, SOL_SOCKET, SO_LINGER, &none, sizeof none) != 0) return 1;
    if (unread && (!WaitFor(server, POLLIN) || !SendAll(server, "x"))) return 2;
    (void)server.release();
    if (by_exit) exit(0);
    _exit(0);
  });
  Fd client = Connected(listener);
  if (unread) {
    REQUIRE(SendAll(client, "nobody reads this"));
    REQUIRE(ReceiveExactly(client, 1) == "x");
  }
  REQUIRE(ExitedWith(Reap(pid), 0));
  char c;
  REQUIRE_ERRNO(recv(client, &c, 1, 0), ECONNRESET);
}

TEST_CASE("process: ends with its last thread, who leaves by a system call") {
  const int status = GENERATE(0, 3);
  Listener listener = Listen();
  const pid_t pid = Fork([&] {
    Fd server(accept(listener.fd, nullptr, nullptr));
    SetNonblocking(server);
    if (!SendAll(server, "last")) return 1;
    syscall(SYS_exit, status);
    return 2;
  });
  Fd client = Connected(listener);
  REQUIRE(ReceiveToEnd(client) == "last");
  REQUIRE(ExitedWith(Reap(pid), status));
}

}  // namespace
}  // namespace posix_test
