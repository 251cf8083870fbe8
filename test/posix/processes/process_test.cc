// Processes: fork, exec, violent death, and a peer that lacks the preload.
#include <linux/sched.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

extern char** environ;

namespace posix_test {
namespace {

TEST_CASE("process: a child that only exits does not disturb the connection") {
  Pair pair = MakePair();
  for (int i = 0; i < 5; ++i) {
    REQUIRE(ExitedWith(Reap(Child([] { return 7; })), 7));
    REQUIRE(SendAll(pair.client, "between"));
    REQUIRE(ReceiveExactly(pair.server, 7) == "between");
  }
}

TEST_CASE("process: a child that only execs does not disturb the connection") {
  Pair pair = MakePair();
  for (int i = 0; i < 5; ++i) {
    const pid_t pid = Child([] {
      execl("/bin/true", "true", nullptr);
      return 1;
    });
    REQUIRE(SendAll(pair.client, "between"));
    REQUIRE(ExitedWith(Reap(pid), 0));
    REQUIRE(ReceiveExactly(pair.server, 7) == "between");
  }
}

TEST_CASE("process: a child that closes what it inherited does not disturb the connection") {
  Pair pair = MakePair();
  const pid_t pid = Child([&] {
    pair.client.reset();
    pair.server.reset();
    return 0;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE(SendAll(pair.client, "unharmed"));
  REQUIRE(ReceiveExactly(pair.server, 8) == "unharmed");
}

TEST_CASE("process: posix_spawn and vfork and system while data flow") {
  Pair pair = MakePair();
  const std::string data = Pattern(5'000'000);
  auto sender = Async([&] { return SendAll(pair.client, data); });
  auto receiver = Async([&] { return Hash(ReceiveExactly(pair.server, data.size())); });
  for (int i = 0; i < 10; ++i) {
    pid_t pid;
    char name[] = "true";
    char* argv[] = {name, nullptr};
    REQUIRE(posix_spawn(&pid, "/bin/true", nullptr, nullptr, argv, environ) == 0);
    REQUIRE(ExitedWith(Reap(pid), 0));
  }
  REQUIRE(system("exit 3") == 3 << 8);
  const pid_t pid = vfork();
  if (pid == 0) {
    execl("/bin/true", "true", nullptr);
    _exit(1);
  }
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(Get(sender));
  REQUIRE(Get(receiver) == Hash(data));
}

TEST_CASE("process: fork in one thread while others move data") {
  Pair pair = MakePair();
  const std::string data = Pattern(10'000'000);
  auto sender = Async([&] { return SendAll(pair.client, data); });
  auto receiver = Async([&] { return Hash(ReceiveExactly(pair.server, data.size())); });
  for (int i = 0; i < 20; ++i) REQUIRE(ExitedWith(Reap(Child([] { return 0; })), 0));
  REQUIRE(Get(sender));
  REQUIRE(Get(receiver) == Hash(data));
}

TEST_CASE("process: workers accept from an inherited listener") {
  Listener listener = Listen();
  std::vector<pid_t> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(Fork([&] {
      for (;;) {
        Fd server(accept(listener.fd, nullptr, nullptr));
        if (server < 0) return 1;
        const std::string got = ReceiveExactly(server, 4);
        if (got == "stop") return 0;
        if (!SendAll(server, got + std::to_string(getpid()))) return 2;
      }
    }));
  }
  for (int i = 0; i < 30; ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    REQUIRE(SendAll(client, "work"));
    REQUIRE(shutdown(client, SHUT_WR) == 0);
    const std::string got = ReceiveToEnd(client);
    REQUIRE(got.substr(0, 4) == "work");
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    REQUIRE(SendAll(client, "stop"));
    REQUIRE(ReceiveToEnd(client).empty());
  }
  for (const pid_t pid : workers) REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("process: workers wait for an inherited listener by poll") {
  Listener listener = Listen(AF_INET, 64, SOCK_NONBLOCK);
  std::vector<pid_t> workers;
  for (int i = 0; i < 3; ++i) {
    workers.push_back(Fork([&] {
      for (;;) {
        if (!WaitFor(listener.fd, POLLIN)) return 1;
        Fd server(accept(listener.fd, nullptr, nullptr));
        if (server < 0) continue;
        const std::string got = ReceiveExactly(server, 4);
        if (got == "stop") return 0;
        if (!SendAll(server, got)) return 2;
      }
    }));
  }
  for (int i = 0; i < 30; ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    REQUIRE(SendAll(client, "work"));
    REQUIRE(ReceiveExactly(client, 4) == "work");
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    REQUIRE(SendAll(client, "stop"));
    REQUIRE(ReceiveToEnd(client).empty());
  }
  for (const pid_t pid : workers) REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("process: a listener lives in its child after the parent closes it") {
  Listener listener = Listen();
  const pid_t pid = Fork([&] {
    Fd server(accept(listener.fd, nullptr, nullptr));
    return server >= 0 && SendAll(server, "child") ? 0 : 1;
  });
  listener.fd.reset();
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(ReceiveToEnd(client) == "child");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("process: a child makes connections of its own to its parent") {
  Listener listener = Listen();
  { Pair warm = ConnectTo(listener); }
  const pid_t pid = Child([&] {
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    if (!SendAll(client, Pattern(300'000))) return 2;
    return ReceiveExactly(client, 4) == "okay" ? 0 : 3;
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(ReceiveExactly(server, 300'000) == Pattern(300'000));
  REQUIRE(SendAll(server, "okay"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("process: a killed peer is a reset or an end within a second") {
  Listener listener = Listen();
  const bool unread = GENERATE(false, true);
  const auto ms_until_heard = [&] {
    const pid_t pid = Fork([&] {
      Fd client = TcpSocket();
      if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
      SendAll(client, "hello");
      for (;;) pause();
    });
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(ReceiveExactly(server, 5) == "hello");
    if (unread) REQUIRE(SendAll(server, Pattern(1000)));
    kill(pid, SIGKILL);
    const Stopwatch watch;
    REQUIRE(WaitFor(server, POLLIN));
    char c;
    const ssize_t n = recv(server, &c, 1, 0);
    const int ms = watch.ms();
    REQUIRE((n == 0 || (n == -1 && errno == ECONNRESET)));
    Reap(pid);
    return ms;
  };
  REQUIRE(OnceWithin(1000, ms_until_heard));
}

TEST_CASE("process: a peer killed while it receives much breaks a blocked send") {
  Listener listener = Listen();
  const auto ms_until_heard = [&] {
    const pid_t pid = Fork([&] {
      Fd client = TcpSocket();
      if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
      ReceiveExactly(client, 100'000);
      for (;;) pause();
    });
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    auto sender = Async([&] {
      const std::string data = Pattern(1 << 20);
      for (int i = 0; i < 100; ++i)
        if (!SendAll(server, data)) return errno;
      return 0;
    });
    REQUIRE(StillRunning(sender, 200));
    kill(pid, SIGKILL);
    const Stopwatch watch;
    const int error = Get(sender);
    const int ms = watch.ms();
    REQUIRE((error == ECONNRESET || error == EPIPE));
    Reap(pid);
    return ms;
  };
  REQUIRE(OnceWithin(1000, ms_until_heard));
}

// A program of Debian's with no preload, and one with, talk to us over plain TCP or SDP alike.
constexpr char kPythonEcho[] =
    "import socket,sys\n"
    "s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
    "b=b''\n"
    "while True:\n"
    "  d=s.recv(65536)\n"
    "  if not d: break\n"
    "  b+=d\n"
    "s.sendall(b)\n";

TEST_CASE("process: a client program with and without the preload", "[mixed]") {
  const bool preload = GENERATE(true, false);
  Listener listener = Listen();
  const std::string port = std::to_string(listener.address.port());
  const pid_t pid = Child([&] {
    if (!preload) unsetenv("LD_PRELOAD");
    execlp("python3", "python3", "-c", kPythonEcho, port.c_str(), nullptr);
    return 1;
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  const std::string data = Pattern(700'000);
  REQUIRE(SendAll(server, data));
  REQUIRE(shutdown(server, SHUT_WR) == 0);
  REQUIRE(Hash(ReceiveToEnd(server)) == Hash(data));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

constexpr char kPythonServer[] =
    "import socket\n"
    "l=socket.create_server(('127.0.0.1',0))\n"
    "print(l.getsockname()[1],flush=True)\n"
    "s,_=l.accept()\n"
    "b=b''\n"
    "while True:\n"
    "  d=s.recv(65536)\n"
    "  if not d: break\n"
    "  b+=d\n"
    "s.sendall(b)\n";

TEST_CASE("process: a server program with and without the preload", "[mixed]") {
  const bool preload = GENERATE(true, false);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Child([&] {
    if (!preload) unsetenv("LD_PRELOAD");
    dup2(out, 1);
    execlp("python3", "python3", "-c", kPythonServer, nullptr);
    return 1;
  });
  out.reset();
  char port[16] = {};
  REQUIRE(WaitFor(in, POLLIN));
  REQUIRE(read(in, port, sizeof(port) - 1) > 0);
  Address target = Loopback(AF_INET, static_cast<uint16_t>(std::stoi(port)));
  Fd client = TcpSocket();
  REQUIRE(connect(client, target.get(), target.length) == 0);
  const std::string data = Pattern(700'000);
  REQUIRE(SendAll(client, data));
  REQUIRE(shutdown(client, SHUT_WR) == 0);
  REQUIRE(Hash(ReceiveToEnd(client)) == Hash(data));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// As sandboxes fork: with namespaces of its own for the child, or flags that fork() does not know.
TEST_CASE("process: a child of the bare clone goes on with the connection") {
  const long number = GENERATE(long{SYS_clone}, long{SYS_fork}, long{SYS_clone3});
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, std::string("one two ")));
  REQUIRE(ReceiveExactly(pair.server, 4) == "one ");
  clone_args request{};
  request.exit_signal = SIGCHLD;
  const long pid = number == SYS_clone3 ? syscall(number, &request, sizeof request)
                                        : syscall(number, number == SYS_clone ? SIGCHLD : 0, nullptr, nullptr,
                                                  nullptr, nullptr);
  REQUIRE(pid >= 0);
  if (pid == 0) {
    pair.client.reset();
    const bool read = ReceiveExactly(pair.server, 8) == "two for ";
    _exit(read && SendAll(pair.server, std::string("child ")) ? 0 : 1);
  }
  REQUIRE(SendAll(pair.client, std::string("for ")));
  REQUIRE(ExitedWith(Reap(static_cast<pid_t>(pid)), 0));
  REQUIRE(SendAll(pair.server, std::string("parent")));
  REQUIRE(ReceiveExactly(pair.client, 12) == "child parent");
}

TEST_CASE("process: clone with a stack of the program's, and with flags that fork does not know") {
  const int flags = GENERATE(SIGCHLD, SIGCHLD | CLONE_VFORK, SIGCHLD | CLONE_PARENT_SETTID);
  static int number;
  Pair pair = MakePair();
  number = pair.server;
  REQUIRE(SendAll(pair.client, std::string("one two ")));
  REQUIRE(ReceiveExactly(pair.server, 4) == "one ");
  std::vector<char> stack(256 * 1024);
  pid_t told = 0;
  const int pid = clone(
      [](void* argument) {
        if (std::string(static_cast<const char*>(argument)) != "argument") return 3;
        const bool read = ReceiveExactly(number, 4) == "two ";
        return read && SendAll(number, std::string("child ")) ? 0 : 1;
      },
      stack.data() + stack.size(), flags, const_cast<char*>("argument"), &told, nullptr, nullptr);
  REQUIRE(pid > 0);
  if ((flags & CLONE_PARENT_SETTID) != 0) REQUIRE(told == pid);
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(SendAll(pair.server, std::string("parent")));
  REQUIRE(ReceiveExactly(pair.client, 12) == "child parent");
}

TEST_CASE("process: clone's errors are the kernel's") {
  if (kUnderTsan)
    return Impossible("TSan's clone gives the kernel a function of its own, whatever the program's is");
  Pair pair = MakePair();
  char stack[64];
  REQUIRE_ERRNO(clone(nullptr, stack, SIGCHLD, nullptr), EINVAL);
  REQUIRE_ERRNO(clone([](void*) { return 0; }, nullptr, SIGCHLD, nullptr), EINVAL);
  clone_args request{};
  REQUIRE_ERRNO(syscall(SYS_clone3, &request, 8), EINVAL);
  REQUIRE_ERRNO(syscall(SYS_clone3, nullptr, sizeof request), EFAULT);
  request.exit_signal = 1 << 20;
  REQUIRE_ERRNO(syscall(SYS_clone3, &request, sizeof request), EINVAL);
  REQUIRE(SendAll(pair.client, "on"));
  REQUIRE(ReceiveExactly(pair.server, 2) == "on");
}

TEST_CASE("process: a server that becomes a daemon keeps its listener and its connections") {
  Listener listener = Listen();
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  const pid_t pid = Child([&] {
    client.reset();
    Fd server(accept(listener.fd, nullptr, nullptr));
    if (ReceiveExactly(server, 5) != "early") return 1;
    if (daemon(1, 1) != 0) return 2;  // only the grandchild comes back
    alarm(20);                        // in a session of its own, where nobody ends it
    if (!SendAll(server, "still here")) return 3;
    server.reset();
    Fd second(accept(listener.fd, nullptr, nullptr));
    return SendAll(second, "and new ones") ? 0 : 4;
  });
  REQUIRE(SendAll(client, "early"));
  REQUIRE(ReceiveToEnd(client) == "still here");
  Fd other = TcpSocket();
  REQUIRE(connect(other, listener.address.get(), listener.address.length) == 0);
  listener.fd.reset();
  REQUIRE(ReceiveToEnd(other) == "and new ones");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("process: a daemon's standard descriptors are no sockets any more") {
  Pair pair = MakePair();
  const pid_t pid = Child([&] {
    pair.client.reset();
    for (int fd = 0; fd <= 2; ++fd) {
      if (dup2(pair.server, fd) != fd) return 1;
    }
    if (daemon(0, 0) != 0) return 2;
    alarm(20);
    char c;
    if (read(0, &c, 1) != 0 || write(1, "lost", 4) != 4) return 3;
    char directory[8];
    if (getcwd(directory, sizeof directory) == nullptr || std::string(directory) != "/" ||
        getsid(0) != getpid())
      return 4;
    return SendAll(pair.server, "by its own number") ? 0 : 5;
  });
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client) == "by its own number");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
