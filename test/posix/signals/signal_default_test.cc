// Signals that stand at SIG_DFL, in a process with connections: who asks, or changes that, or is another
// process finds them there.
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>

#include "test/posix/sanitizers.h"
#include "test/posix/signals/ended_process.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

// A child with a connection, and what has ended it.
int Ended(const std::function<int(Pair&)>& body) {
  return Reap(Fork([&] {
    TakeDefaults();
    Pair pair = MakePair();
    return body(pair);
  }));
}

bool Talks(Pair& pair) { return SendAll(pair.client, "hello") && ReceiveExactly(pair.server, 5) == "hello"; }

volatile sig_atomic_t caught = 0;
void Count(int) { caught = caught + 1; }

TEST_CASE("default signals: sigaction tells what the program has given") {
  const int status = Reap(Fork([] {
    TakeDefaults();
    struct sigaction given {};
    given.sa_flags = SA_RESTART | SA_NODEFER;
    sigemptyset(&given.sa_mask);
    sigaddset(&given.sa_mask, SIGWINCH);
    sigaction(SIGUSR2, &given, nullptr);
    struct sigaction before[NSIG];
    bool known[NSIG];
    for (int number = 1; number < NSIG; ++number)
      known[number] = sigaction(number, nullptr, &before[number]) == 0;
    Pair pair = MakePair();
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction now {};
      if ((sigaction(number, nullptr, &now) == 0) != known[number]) return 1;
      if (!known[number]) continue;
      if (now.sa_handler != SIG_DFL || now.sa_flags != before[number].sa_flags) return 2;
      for (int other = 1; other < NSIG; ++other) {
        if (sigismember(&now.sa_mask, other) != sigismember(&before[number].sa_mask, other)) return 3;
      }
    }
    if (signal(SIGINT, SIG_IGN) != SIG_DFL || signal(SIGINT, SIG_DFL) != SIG_IGN ||
        signal(SIGINT, SIG_IGN) != SIG_DFL)
      return 4;
    struct sigaction again {};
    if (sigaction(SIGUSR2, &given, &again) != 0 || again.sa_handler != SIG_DFL ||
        sigismember(&again.sa_mask, SIGWINCH) != 1)
      return 5;
    return 0;
  }));
  REQUIRE(ExitedWith(status, 0));
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST_CASE("default signals: sigset tells and keeps what it is given") {
  const int status = Ended([](Pair& pair) {
    if (sigset(SIGTERM, Count) != SIG_DFL) return 1;
    raise(SIGTERM);
    if (caught != 1 || sigset(SIGTERM, SIG_HOLD) != Count) return 2;
    raise(SIGTERM);
    if (caught != 1 || sigset(SIGTERM, Count) != SIG_HOLD || caught != 2) return 3;
    if (sigset(SIGTERM, SIG_IGN) != Count || raise(SIGTERM) != 0 || sigset(SIGTERM, SIG_DFL) != SIG_IGN)
      return 4;
    if (sigset(SIGKILL, SIG_IGN) != SIG_ERR || errno != EINVAL || sigset(NSIG + 1, SIG_DFL) != SIG_ERR ||
        errno != EINVAL)
      return 5;
    if (!Talks(pair)) return 6;
    raise(SIGTERM);
    return 7;
  });
  REQUIRE(EndedBy(status, SIGTERM));
}
#pragma GCC diagnostic pop

TEST_CASE("default signals: one that is ignored later is ignored, and one that is no more ends the process") {
  const int status = Ended([](Pair& pair) {
    signal(SIGTERM, SIG_IGN);
    raise(SIGTERM);
    kill(getpid(), SIGTERM);
    if (!Talks(pair)) return 1;
    signal(SIGTERM, SIG_DFL);
    raise(SIGTERM);
    return 2;
  });
  REQUIRE(EndedBy(status, SIGTERM));
}

TEST_CASE("default signals: a handler of the program's runs, and one for once leaves the default behind") {
  const int status = Ended([](Pair& pair) {
    signal(SIGTERM, Count);
    raise(SIGTERM);
    struct sigaction once {};
    once.sa_handler = Count;
    once.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGUSR1, &once, nullptr);
    raise(SIGUSR1);
    if (caught != 2 || !Talks(pair)) return 1;
    struct sigaction now {};
    if (sigaction(SIGUSR1, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return 2;
    raise(SIGUSR1);
    return 3;
  });
  REQUIRE(EndedBy(status, SIGUSR1));
}

TEST_CASE("default signals: SIG_DFL with SA_SIGINFO is the default, too") {
  const int status = Ended([](Pair& pair) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGCHLD, &action, nullptr);
    raise(SIGCHLD);
    if (!Talks(pair)) return 1;
    raise(SIGTERM);
    return 2;
  });
  REQUIRE(EndedBy(status, SIGTERM));
}

TEST_CASE("default signals: one that is blocked can be waited for") {
  const int status = Ended([](Pair& pair) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    kill(getpid(), SIGTERM);
    int number = 0;
    if (sigwait(&set, &number) != 0 || number != SIGTERM) return 1;
    const Fd fd(signalfd(-1, &set, SFD_CLOEXEC));
    kill(getpid(), SIGTERM);
    signalfd_siginfo info{};
    if (read(fd, &info, sizeof info) != sizeof info || info.ssi_signo != SIGTERM) return 2;
    return Talks(pair) ? 0 : 3;
  });
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("default signals: a child of vfork is ended, and its parent goes on") {
  const int status = Ended([](Pair& pair) {
    if (!Talks(pair)) return 1;
    pair = {};  // with a connection of its own it is a child of fork, perhaps
    const pid_t child = vfork();
    if (child == 0) {
      kill(getpid(), SIGTERM);
      _exit(1);
    }
    int ended = 0;
    if (waitpid(child, &ended, 0) != child || !EndedBy(ended, SIGTERM)) return 2;
    struct sigaction now {};
    if (sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return 3;
    Pair another = MakePair();
    return Talks(another) ? 0 : 4;
  });
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("default signals: another program has what it would have") {
  const int status = Ended([](Pair& pair) {
    signal(SIGHUP, SIG_IGN);
    for (const char* command : {"kill -TERM $$", "kill -HUP $$; kill -TERM $$"}) {
      const int ended = system(command);
      if (!EndedBy(ended, SIGTERM)) return 1;
    }
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", "kill -HUP $$; kill -USR1 $$", nullptr);
      _exit(1);
    }
    int ended = 0;
    if (waitpid(child, &ended, 0) != child || !EndedBy(ended, SIGUSR1)) return 2;
    return Talks(pair) ? 0 : 3;
  });
  REQUIRE(ExitedWith(status, 0));
}

// At any moment of that: a program gets the signal, the old one or the new one.
TEST_CASE("default signals: one that comes as the process becomes another program ends one of them") {
  for (int moment = 0; moment < 48; ++moment) {
    Pipe about, never;
    const pid_t pid = Fork([&] {
      TakeDefaults();
      Pair pair = MakePair();
      if (dup2(never.in, STDIN_FILENO) != STDIN_FILENO || write(about.out, "x", 1) != 1) return 1;
      execl("/bin/cat", "cat", nullptr);
      return 2;
    });
    REQUIRE(about.Hear());
    // Nothing is waited for: the signal is to meet the exec at each of its steps, of which nobody hears.
    const timespec until{.tv_sec = 0, .tv_nsec = moment * 25'000};
    nanosleep(&until, nullptr);
    REQUIRE(kill(pid, SIGTERM) == 0);
    REQUIRE(EndedBy(Reap(pid), SIGTERM));
  }
}

// By the kernel's own word.
bool IsCaught(int number) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigCgt:", 0) == 0)
      return (std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1) != 0;
  }
  return true;
}

TEST_CASE("default signals: nothing is caught without a connection, and never what leaves a core") {
  const int status = Reap(Fork([] {
    TakeDefaults();
    Listener listener = Listen();
    const Fd alone = TcpSocket();
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) {
      if (IsCaught(number)) return number;
    }
    Pair pair = ConnectTo(listener);
    if (!Talks(pair)) return 100;
    for (const int number : {SIGQUIT, SIGXCPU, SIGXFSZ}) {
      if (IsCaught(number)) return 100 + number;
    }
    return 0;
  }));
  REQUIRE(ExitedWith(status, 0));
}

// Whether this process's child may be the first of a PID namespace.
bool MayUnsharePids() {
  return ExitedWith(Reap(Fork([] { return syscall(SYS_unshare, CLONE_NEWPID) == 0 ? 0 : 1; })), 0);
}

// In its parent's memory, where the handlers are.
int RaiseAsFirst(void*) {
  if (getpid() != 1) return 1;
  raise(SIGTERM);
  kill(getpid(), SIGTERM);
  raise(SIGHUP);
  return 0;
}

TEST_CASE("default signals: the first process of a PID namespace in the memory of another is ended by none") {
  if (kUnderTsan)
    return Impossible(
        "TSan keeps a signal for later in memory that the two share, and runs its handler in the other");
  if (!MayUnsharePids()) return sdp::test::Skipped("no PID namespaces here");
  const int status = Ended([](Pair& pair) {
    static char stack[256 * 1024];
    const pid_t first =
        clone(RaiseAsFirst, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_NEWPID | SIGCHLD, nullptr);
    int ended = 0;
    if (waitpid(first, &ended, 0) != first || !ExitedWith(ended, 0)) return 1;
    if (!Talks(pair)) return 2;
    raise(SIGTERM);
    return 3;
  });
  REQUIRE(EndedBy(status, SIGTERM));
}

TEST_CASE(
    "default signals: the first process of a PID namespace is ended by none, and its calls notice none") {
  if (!MayUnsharePids()) return sdp::test::Skipped("no PID namespaces here");
  const bool from_before = GENERATE(false, true);
  Pipe ready, go;
  // The first process as it knows itself; its parent hands on how it ends.
  const int status = Reap(Fork([&] {
    TakeDefaults();
    Pair pair;
    if (from_before) pair = MakePair();
    if (unshare(CLONE_NEWPID) != 0) return 1;
    const pid_t first = fork();
    if (first == 0) {
      if (getpid() != 1) _exit(2);
      if (!from_before) pair = MakePair();
      raise(SIGTERM);
      kill(getpid(), SIGHUP);
      if (write(ready.out, "x", 1) != 1) _exit(3);
      pollfd p{.fd = go.in, .events = POLLIN, .revents = 0};
      if (poll(&p, 1, kPatienceMs) != 1) _exit(4);
      _exit(Talks(pair) ? 0 : 5);
    }
    if (!ready.Hear()) return 6;
    for (const int number : {SIGTERM, SIGINT, SIGUSR1}) kill(first, number);
    if (write(go.out, "x", 1) != 1) return 7;
    int ended = 0;
    if (waitpid(first, &ended, 0) != first || !WIFEXITED(ended)) return 8;
    return WEXITSTATUS(ended);
  }));
  REQUIRE(ExitedWith(status, 0));
}

}  // namespace
}  // namespace posix_test
