// A process that SIGTERM or its like ends with bytes unsent or unread: what its peer gets.
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#include <iterator>
#include <memory>
#include <thread>

#include "test/posix/sanitizers.h"
#include "test/posix/signals/ended_process.h"

namespace posix_test {
namespace {

struct Sent {
  size_t bytes = 0;
  Fd peer;
};

// Sends of `data` as much as is taken without blocking, or all of it; then SIGTERM ends it.
class SendsAndIsTerminated {
 public:
  SendsAndIsTerminated(std::string data, bool blocking)
      : child_([this, data = std::move(data), blocking](const auto& connected) {
          const Fd client(connected());
          if (client < 0) return 1;
          SetNonblocking(client, !blocking);
          size_t sent = 0;
          while (sent < data.size()) {
            const ssize_t n =
                send(client, data.data() + sent, std::min<size_t>(data.size() - sent, 10'000), MSG_NOSIGNAL);
            if (n <= 0) break;
            sent += static_cast<size_t>(n);
          }
          if (write(told_.out, &sent, sizeof sent) != sizeof sent) return 2;
          Pause();
          return 3;
        }) {}
  Sent End() {
    Sent result;
    result.peer = std::move(child_.Accept(1).front());
    REQUIRE(WaitFor(told_.in, POLLIN));
    REQUIRE(read(told_.in, &result.bytes, sizeof result.bytes) == sizeof result.bytes);
    REQUIRE(kill(child_.pid(), SIGTERM) == 0);
    REQUIRE(EndedBy(Reap(child_.pid()), SIGTERM));
    return result;
  }

 private:
  Pipe told_;
  Connecting child_;
};

// All that comes, however that ends.
std::string ReadAll(int fd) {
  std::string all;
  std::vector<char> room(70'000);
  ssize_t n;
  while ((n = recv(fd, room.data(), room.size(), 0)) > 0) all.append(room.data(), static_cast<size_t>(n));
  return all;
}

TEST_CASE("terminated: what was sent while the peer had room arrives whole") {
  constexpr size_t kSizes[] = {1, 1000, 60'000};
  std::vector<std::unique_ptr<SendsAndIsTerminated>> children;
  for (const size_t size : kSizes)
    children.push_back(std::make_unique<SendsAndIsTerminated>(Pattern(size), true));
  for (size_t i = 0; i < children.size(); ++i) {
    const Sent sent = children[i]->End();
    REQUIRE(sent.bytes == kSizes[i]);
    REQUIRE(ReadAll(sent.peer) == Pattern(kSizes[i]));
  }
}

TEST_CASE(
    "terminated: of what a sender got rid of before its peer read anything, the beginning arrives without a "
    "gap") {
  const std::string data = Pattern(16'000'000);
  const Sent sent = SendsAndIsTerminated(data, false).End();
  REQUIRE(sent.bytes < data.size());
  const std::string got = ReadAll(sent.peer);
  REQUIRE(got.size() >= 60'000);
  REQUIRE(got.size() <= sent.bytes);
  REQUIRE(Hash(got) == Hash(data.substr(0, got.size())));
}

TEST_CASE("terminated: all that a sender got rid of before its peer read anything arrives") {
  const Sent sent = SendsAndIsTerminated(Pattern(16'000'000), false).End();
  REQUIRE(ReadAll(sent.peer).size() == sent.bytes);
}

TEST_CASE("terminated: with bytes unread the peer is reset") {
  Pipe told;
  std::vector<std::unique_ptr<Connecting>> children;
  for (const bool reads_one : {true, false}) {
    children.push_back(std::make_unique<Connecting>([&told, reads_one](const auto& connected) {
      const Fd client(connected());
      char c;
      if (reads_one ? recv(client, &c, 1, 0) != 1 : !WaitFor(client, POLLIN)) return 2;
      if (write(told.out, &c, 1) != 1) return 3;
      Pause();
      return 4;
    }));
  }
  for (const auto& child : children) {
    const Fd peer = std::move(child->Accept(1).front());
    REQUIRE(SendAll(peer, Pattern(50'000)));
    REQUIRE(told.Hear());
    REQUIRE(kill(child->pid(), SIGTERM) == 0);
    REQUIRE(EndedBy(Reap(child->pid()), SIGTERM));
    char c;
    REQUIRE_ERRNO(recv(peer, &c, 1, 0), ECONNRESET);
    REQUIRE_ERRNO(send(peer, &c, 1, MSG_NOSIGNAL), EPIPE);
  }
}

TEST_CASE(
    "terminated: what its peer has no room for yet arrives at a peer that reads from then on, and then the "
    "end") {
  const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGUSR1, SIGPIPE, SIGPROF, SIGRTMIN};
  Fillers children;
  for (size_t i = 0; i < std::size(numbers); ++i)
    children.push_back(std::make_unique<Filler>(std::vector{Filler::kPiece}, [](const auto&) { Pause(); }));
  for (size_t i = 0; i < children.size(); ++i) {
    children[i]->Fill();
    RequireDelivers(*children[i], numbers[i]);
  }
}

TEST_CASE("terminated: two connections, whichever is read first") {
  Fillers children;
  for (int i = 0; i < 2; ++i)
    children.push_back(
        std::make_unique<Filler>(std::vector{Filler::kPiece, Filler::kPiece}, [](const auto&) { Pause(); }));
  for (const size_t first : {0, 1}) {
    Filler& child = *children[first];
    child.Fill();
    REQUIRE(kill(child.pid(), SIGTERM) == 0);
    for (const size_t i : {first, 1 - first}) RequireAll(child.peers[i], child.sent[i]);
    REQUIRE(EndedBy(Reap(child.pid()), SIGTERM));
  }
}

// With small pieces it is not the link that is full: the sleep is another one.
TEST_CASE("terminated: asleep in a receive") {
  if (kUnderTsan)
    return Impossible(
        "TSan holds a handler back until recv returns, and then shows it the place where recv slept");
  const size_t pieces[] = {Filler::kPiece, 100};
  Fillers children;
  for (const size_t piece : pieces) {
    children.push_back(std::make_unique<Filler>(std::vector{piece}, [](const auto& fds) {
      char c;
      (void)!recv(fds[0], &c, 1, 0);
    }));
  }
  for (const auto& child : children) {
    child->Fill();
    LetSleep(child->pid());
    RequireDelivers(*child);
  }
}

// By reading the peer grants credit, which wakes the thread that sleeps in a receive. It waits for the
// one processor, though, and by the time it has it the signal has come, too: between what has been read and
// who is told of it.
TEST_CASE("terminated: asleep in a receive, and woken by the peer's reading") {
  if (kUnderTsan) return Impossible("TSan holds a handler back until recv returns");
  cpu_set_t all, one;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  Fillers children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(std::make_unique<Filler>(std::vector<size_t>{100}, [](const auto& fds) {
      const sched_param none{};
      sched_setscheduler(0, SCHED_BATCH, &none);  // who wakes does not push others aside
      char c;
      (void)!recv(fds[0], &c, 1, 0);
    }));
  }
  for (const auto& child : children) {
    child->Fill();
    LetSleep(child->pid());
    const std::string first = ReceiveExactly(child->peers[0], 1);
    REQUIRE(kill(child->pid(), SIGTERM) == 0);
    RequireAll(child->peers[0], child->sent[0], first);
    REQUIRE(EndedBy(Reap(child->pid()), SIGTERM));
  }
  sched_setaffinity(0, sizeof all, &all);
}

TEST_CASE("terminated: asleep in a wait") {
  Fillers children;
  for (const int way : {0, 1, 2}) {
    children.push_back(std::make_unique<Filler>(std::vector{Filler::kPiece}, [way](const auto& fds) {
      char c;
      pollfd p{.fd = fds[0], .events = POLLIN, .revents = 0};
      if (way == 0) poll(&p, 1, -1);
      if (way == 1) {
        const Fd set(epoll_create1(0));
        epoll_event event{EPOLLIN, {}};
        epoll_ctl(set, EPOLL_CTL_ADD, fds[0], &event);
        epoll_wait(set, &event, 1, -1);
      }
      if (way == 2) {
        SetTimeout(fds[0], SO_RCVTIMEO, 1'000'000);
        (void)!recv(fds[0], &c, 1, 0);
      }
    }));
  }
  for (const auto& child : children) {
    child->Fill();
    LetSleep(child->pid());
    RequireDelivers(*child);
  }
}

TEST_CASE("terminated: asleep in a send, of which nothing is missing in the middle") {
  Filler child({Filler::kPiece}, [](const auto& fds) {
    const std::string rest = Sendings();
    for (;;) (void)!send(fds[0], rest.data(), rest.size(), 0);
  });
  child.Fill();
  LetSleep(child.pid());
  REQUIRE(kill(child.pid(), SIGTERM) == 0);
  const std::string got = ReceiveToEnd(child.peers[0]);
  REQUIRE(got.size() >= child.sent[0]);
  REQUIRE(IsBeginning(got.substr(0, child.sent[0])));
  REQUIRE(IsBeginning(got.substr(child.sent[0])));
  REQUIRE(EndedBy(Reap(child.pid()), SIGTERM));
}

// Memory with none below.
void* Guarded(size_t size) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* const all =
      static_cast<char*>(mmap(nullptr, page + size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(all + page, size, PROT_READ | PROT_WRITE);
  return all + page;
}

// No calls: there is no room for them either.
volatile int* spins = nullptr;
void Spin() {
  for (;;) *spins = 1;
}

// As a goroutine may be. What the kernel puts on a stack for a handler takes more than that.
void SpinOnSmallStack() {
  constexpr size_t kForHandlers = 32 * 1024, kSmall = 1024;
  const stack_t handlers{.ss_sp = Guarded(kForHandlers), .ss_flags = 0, .ss_size = kForHandlers};
  ucontext_t here, there;
  if (sigaltstack(&handlers, nullptr) != 0 || getcontext(&there) != 0) _exit(1);
  there.uc_link = nullptr;
  there.uc_stack = {.ss_sp = Guarded(kSmall), .ss_flags = 0, .ss_size = kSmall};
  makecontext(&there, Spin, 0);
  swapcontext(&here, &there);
}

TEST_CASE("terminated: on a stack that has no room for a handler, beside one that has") {
  if (kUnderTsan) return Impossible("TSan's own code has no room there");
  spins = static_cast<volatile int*>(
      mmap(nullptr, sizeof *spins, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Filler child({Filler::kPiece}, [](const auto&) { SpinOnSmallStack(); });
  child.Fill();
  REQUIRE(Eventually([&] { return *spins == 1; }));
  RequireDelivers(child);
}

TEST_CASE("terminated: while other threads send and receive, and one exits when that fails") {
  Pipe there;
  Filler child({Filler::kPiece, Filler::kPiece}, [&](const auto& fds) {
    for (int i = 0; i < 3; ++i) {
      std::thread([fd = fds[1]] {
        char c = 0;
        while (send(fd, &c, 1, MSG_NOSIGNAL) == 1) {
        }
        exit(7);
      }).detach();
      std::thread([fd = fds[1]] {
        char c;
        (void)!recv(fd, &c, 1, 0);
        _exit(8);
      }).detach();
    }
    if (write(there.out, "x", 1) == 1) Pause();
  });
  child.Fill();
  REQUIRE(there.Hear());
  REQUIRE(kill(child.pid(), SIGTERM) == 0);
  RequireAll(child.peers[0], child.sent[0]);
  const std::string got = ReceiveToEnd(child.peers[1]);
  REQUIRE(got.size() >= child.sent[1]);
  REQUIRE(IsBeginning(got.substr(0, child.sent[1])));
  REQUIRE(EndedBy(Reap(child.pid()), SIGTERM));
}

TEST_CASE("terminated: to its other threads the process is gone") {
  constexpr int kWays = 4;
  Pipe there, go, came_back;
  Fillers children;
  for (int way = 0; way < kWays; ++way) {
    children.push_back(
        std::make_unique<Filler>(std::vector{Filler::kPiece, Filler::kNothing}, [&, way](const auto& fds) {
          std::thread([&, way, fd = fds[0]] {
            if (write(there.out, "x", 1) != 1 || !go.Hear()) return;
            if (way == 0) (void)!send(fd, "x", 1, MSG_NOSIGNAL);
            if (way == 1) execl("/bin/true", "true", nullptr);
            if (way == 2) (void)fork();
            if (way == 3) exit(7);
            (void)!write(came_back.out, "x", 1);
          }).detach();
          Pause();
        }));
  }
  for (const auto& child : children) {
    child->Fill();
    REQUIRE(there.Hear());
    REQUIRE(kill(child->pid(), SIGTERM) == 0);
    RequireEnding(*child);
    go.Tell();
    REQUIRE_FALSE(WaitFor(came_back.in, POLLIN, kQuietMs));
    RequireAll(child->peers[0], child->sent[0]);
    REQUIRE(EndedBy(Reap(child->pid()), SIGTERM));
    REQUIRE_FALSE(WaitFor(came_back.in, POLLIN, 0));
    SetNonblocking(go.in);  // a kernel's process did not hear it
    char c;
    (void)!read(go.in, &c, 1);
    SetNonblocking(go.in, false);
  }
}

// What it did in its last moments is for nobody to see: a file that ends where the stream was cut off looks
// whole.
TEST_CASE("terminated: no other thread takes the end for the peer's") {
  Pipe there, came_back;
  Filler child({Filler::kPiece, Filler::kNothing, Filler::kNothing}, [&](const auto& fds) {
    for (const int fd : {fds[1], fds[2]}) {
      std::thread([&, fd] {
        char c;
        if (write(there.out, "x", 1) != 1) return;
        while (recv(fd, &c, 1, 0) > 0) {
        }
        (void)!write(came_back.out, "x", 1);
      }).detach();
    }
    Pause();
  });
  child.Fill();
  REQUIRE(there.Hear());
  REQUIRE(there.Hear());
  REQUIRE(kill(child.pid(), SIGTERM) == 0);
  RequireEnding(child);
  child.peers[1] = Fd();               // its end
  (void)SendAll(child.peers[2], "x");  // of what else it might have sent
  REQUIRE_FALSE(WaitFor(came_back.in, POLLIN, kQuietMs));
  RequireAll(child.peers[0], child.sent[0]);
  REQUIRE(EndedBy(Reap(child.pid()), SIGTERM));
  REQUIRE_FALSE(WaitFor(came_back.in, POLLIN, 0));
}

TEST_CASE("terminated: a thread whose pipe breaks meanwhile does not end it sooner") {
  Pipe there, go;
  int broken[2];
  REQUIRE(pipe(broken) == 0);
  Filler child({Filler::kPiece, Filler::kNothing}, [&](const auto&) {
    close(broken[0]);
    signal(SIGPIPE, SIG_DFL);
    std::thread([&] {
      if (write(there.out, "x", 1) != 1 || !go.Hear()) return;
      (void)!write(broken[1], "x", 1);
      _exit(7);
    }).detach();
    Pause();
  });
  close(broken[0]);
  close(broken[1]);
  child.Fill();
  REQUIRE(there.Hear());
  REQUIRE(kill(child.pid(), SIGTERM) == 0);
  RequireEnding(child);
  REQUIRE_FALSE(WaitFor(there.in, POLLIN, 3 * kQuietMs));  // for longer than signals belong to the same end
  go.Tell();
  REQUIRE_FALSE(WaitFor(there.in, POLLIN, kQuietMs));
  RequireAll(child.peers[0], child.sent[0]);
  REQUIRE(EndedBy(Reap(child.pid()), SIGTERM));
  SetNonblocking(go.in);  // a kernel's process did not hear it
}

TEST_CASE("terminated: in a thread of its own, and by a signal for that thread") {
  Fillers children;
  for (const bool for_thread : {true, false}) {
    children.push_back(std::make_unique<Filler>(std::vector{Filler::kPiece}, [for_thread](const auto&) {
      std::thread([for_thread] {
        if (for_thread) raise(SIGTERM);
        kill(getpid(), SIGTERM);
        Pause();
      }).detach();
      syscall(SYS_exit, 0);
    }));
  }
  for (const auto& child : children) {
    child->Fill();
    RequireAll(child->peers[0], child->sent[0]);
    REQUIRE(EndedBy(Reap(child->pid()), SIGTERM));
  }
}

TEST_CASE("terminated: once more, while the peer reads nothing, ends it at once, by the first signal") {
  const int others[] = {SIGINT, SIGPIPE};
  Fillers children;
  for (size_t i = 0; i < std::size(others); ++i) {
    children.push_back(std::make_unique<Filler>(std::vector{Filler::kPiece, Filler::kNothing},
                                                [](const auto&) { Pause(); }));
  }
  for (size_t i = 0; i < std::size(others); ++i) {
    Filler& child = *children[i];
    child.Fill();
    const Stopwatch watch;
    siginfo_t info{};
    REQUIRE(kill(child.pid(), SIGTERM) == 0);
    RequireEnding(child);
    REQUIRE(Eventually([&] {
      kill(child.pid(), others[i]);
      return waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid == child.pid();
    }));
    REQUIRE(watch.ms() < 5000);  // by itself it waits for so long
    REQUIRE(EndedBy(Reap(child.pid()), SIGTERM));
  }
}

TEST_CASE("terminated: by a signal that leaves a core, while the peer reads nothing, at once") {
  Filler child({Filler::kPiece, Filler::kNothing}, [](const auto&) {
    prctl(PR_SET_DUMPABLE, 0);
    Pause();
  });
  child.Fill();
  const Stopwatch watch;
  REQUIRE(kill(child.pid(), SIGTERM) == 0);
  RequireEnding(child);
  REQUIRE(kill(child.pid(), SIGQUIT) == 0);
  const int status = Reap(child.pid());
  REQUIRE(watch.ms() < 5000);  // as above
  REQUIRE((EndedBy(status, SIGQUIT) || EndedBy(status, SIGTERM)));
}

TEST_CASE("terminated: by two signals at once is terminated by the first") {
  Filler child({Filler::kPiece}, [](const auto&) {
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGINT);
    if (sigpending(&pending) != 0 || sigismember(&pending, SIGINT) != 1 ||
        sigismember(&pending, SIGTERM) != 1)
      _exit(9);
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    _exit(10);
  });
  child.Fill();
  RequireAll(child.peers[0], child.sent[0]);
  REQUIRE(EndedBy(Reap(child.pid()), SIGINT));
}

TEST_CASE("terminated: with nothing unsent its peer reads the end") {
  std::vector<std::unique_ptr<Connecting>> children;
  for (const bool spoken : {true, false}) {
    children.push_back(std::make_unique<Connecting>([spoken](const auto& connected) {
      const int fd = connected();
      if (spoken && ReceiveExactly(fd, 5) != "hello") return 1;
      if (!SendAll(fd, "ready")) return 2;
      Pause();
      return 3;
    }));
  }
  for (size_t i = 0; i < children.size(); ++i) {
    const Fd peer = std::move(children[i]->Accept(1).front());
    if (i == 0) REQUIRE(SendAll(peer, "hello"));
    REQUIRE(ReceiveExactly(peer, 5) == "ready");
    REQUIRE(kill(children[i]->pid(), SIGTERM) == 0);
    char c;
    REQUIRE(recv(peer, &c, 1, 0) == 0);
    REQUIRE(EndedBy(Reap(children[i]->pid()), SIGTERM));
  }
}

TEST_CASE(
    "terminated: behind an end of the peer's that it has not read, with nothing unsent, its peer reads the "
    "end") {
  Connecting child([](const auto& connected) {
    if (!SendAll(connected(), "ready")) return 2;
    Pause();
    return 3;
  });
  const Fd peer = std::move(child.Accept(1).front());
  REQUIRE(ReceiveExactly(peer, 5) == "ready");
  REQUIRE(shutdown(peer, SHUT_WR) == 0);
  REQUIRE(kill(child.pid(), SIGTERM) == 0);
  char c;
  REQUIRE(recv(peer, &c, 1, 0) == 0);
  REQUIRE(EndedBy(Reap(child.pid()), SIGTERM));
}

TEST_CASE("terminated: a child leaves its parent the connection") {
  if (kUnderTsan) return Impossible(why::kChild);
  const bool used = GENERATE(true, false);
  Pair pair = MakePair();
  Pipe told;
  const pid_t pid = Fork([&] {
    TakeDefaults();
    if (used && !SendAll(pair.client, "child")) return 1;
    if (write(told.out, "x", 1) != 1) return 2;
    Pause();
    return 3;
  });
  REQUIRE(told.Hear());
  REQUIRE(kill(pid, SIGTERM) == 0);
  REQUIRE(EndedBy(Reap(pid), SIGTERM));
  if (used) REQUIRE(ReceiveExactly(pair.server, 5) == "child");
  REQUIRE(SendAll(pair.client, "parent"));
  REQUIRE(ReceiveExactly(pair.server, 6) == "parent");
  REQUIRE(SendAll(pair.server, "back"));
  REQUIRE(ReceiveExactly(pair.client, 4) == "back");
}

// What a process does with a connection that it has inherited, beside one that does nothing with it and is
// then the last one who has it.
enum class Use : uint8_t { kNone, kExec, kSend, kReceive };

// The last one is terminated when the other's use is over, and this process has closed `pair.client`.
// `exits`: it has a handler, which exits.
void EndLastHolder(Pair& pair, Use use, bool exits) {
  Pipe told;
  Pipe closed;
  const pid_t pid = Fork([&] {
    TakeDefaults();
    if (exits) signal(SIGTERM, [](int) { _exit(7); });
    pair.server.reset();
    closed.out.reset();
    const int beside = Reap(Fork([&] {
      switch (use) {
        case Use::kNone:
          return 0;
        case Use::kExec:
          fcntl(pair.client, F_SETFD, 0);
          execl("/bin/true", "true", nullptr);
          return 1;
        case Use::kSend:
          return SendAll(pair.client, "beside") ? 0 : 1;
        case Use::kReceive:
          return ReceiveExactly(pair.client, 2) == "go" ? 0 : 1;
      }
      return 2;
    }));
    if (!ExitedWith(beside, 0)) return 1;
    if (!closed.HearEnd()) return 2;
    told.Tell();
    Pause();
    return 3;
  });
  pair.client.reset();
  closed.out.reset();
  REQUIRE(told.Hear());
  REQUIRE(kill(pid, SIGTERM) == 0);
  const int status = Reap(pid);
  REQUIRE((exits ? ExitedWith(status, 7) : EndedBy(status, SIGTERM)));
}

TEST_CASE(
    "terminated: of the last one who has a connection, behind one that has used it, the peer reads the end") {
  if (kUnderTsan) return Impossible(why::kChild);
  const Use use = GENERATE(Use::kNone, Use::kExec, Use::kSend, Use::kReceive);
  const bool peer_has_ended = GENERATE(false, true);
  const bool exits = GENERATE(false, true);
  CAPTURE(use, peer_has_ended, exits);
  Pair pair = MakePair();
  if (use == Use::kReceive) REQUIRE(SendAll(pair.server, "go"));
  if (peer_has_ended) REQUIRE(shutdown(pair.server, SHUT_WR) == 0);
  EndLastHolder(pair, use, exits);
  if (use == Use::kSend) REQUIRE(ReceiveExactly(pair.server, 6) == "beside");
  char c;
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
}

TEST_CASE("terminated: of the last one who has a connection, with bytes unread, the peer is reset") {
  if (kUnderTsan) return Impossible(why::kChild);
  const Use use = GENERATE(Use::kNone, Use::kExec, Use::kReceive);
  const bool exits = GENERATE(false, true);
  CAPTURE(use, exits);
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.server, "gone"));
  EndLastHolder(pair, use, exits);
  char c;
  REQUIRE_ERRNO(recv(pair.server, &c, 1, 0), ECONNRESET);
}

}  // namespace
}  // namespace posix_test
