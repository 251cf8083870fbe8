// Sockets in another program: exec in all its forms, and posix_spawn.
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "test/posix/processes.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

// --- What the other program does.

// "echo" to the end of the stream, then "bye".
TEST_CASE("echo on an inherited descriptor", "[.inherited-echo]") {
  const int fd = InheritedNumber();
  const std::string got = ReceiveToEnd(fd);
  REQUIRE(SendAll(fd, got));
  REQUIRE(SendAll(fd, "bye"));
}

TEST_CASE("accept from an inherited descriptor", "[.inherited-accept]") {
  const int fd = InheritedNumber();
  REQUIRE(GetOption(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1);
  Fd server(accept(fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(SendAll(server, ReceiveToEnd(server)));
}

TEST_CASE("what an inherited descriptor knows", "[.inherited-names]") {
  const int fd = InheritedNumber();
  REQUIRE(GetOption(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
  REQUIRE(GetOption(fd, SOL_SOCKET, SO_RCVLOWAT) == 3);
  REQUIRE(IsNonblocking(fd));
  const std::string names = LocalOf(fd).ToString() + " " + PeerOf(fd).ToString();
  REQUIRE(getenv("SDP_INHERITED") == nullptr);
  REQUIRE(SendAll(fd, names));
}

TEST_CASE("listen on an inherited descriptor", "[.inherited-listen]") {
  const int fd = InheritedNumber();
  REQUIRE(listen(fd, 8) == 0);
  Fd(atoi(getenv("POSIX_TEST_READY"))).reset();
  Fd server(accept(fd, nullptr, nullptr));
  REQUIRE(SendAll(server, ReceiveToEnd(server)));
}

// --- Starting it

// Through `fd`, what the other end of an echo answers to `data`.
void CheckEcho(int fd, const std::string& data) {
  auto sender = Async([&] { return SendAll(fd, data) && shutdown(fd, SHUT_WR) == 0; });
  const std::string got = ReceiveToEnd(fd);
  REQUIRE(Get(sender));
  REQUIRE(got.size() == data.size() + 3);
  REQUIRE(Hash(got) == Hash(data + "bye"));
}

TEST_CASE("exec: a forked child's program goes on with the connection") {
  const int how = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  const bool parent_closes_first = GENERATE(false, true);
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "before"));
  REQUIRE(ReceiveExactly(pair.server, 3) == "bef");
  Program program("[.inherited-echo]", pair.server);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    Silence();
    out.reset();
    pair.client.reset();
    char c;
    if (read(in, &c, 1) != 0) return 1;
    in.reset();
    setenv(kInheritedNumber, std::to_string(pair.server).c_str(), 1);
    char* const* argv = program.argv.data();
    const char* path = program.path.c_str();
    if (how == 0) execve(path, argv, program.envp.data());
    if (how == 1) execv(path, argv);
    if (how == 2) execvp(path, argv);
    if (how == 3) execvpe(path, argv, program.envp.data());
    if (how == 4) execl(path, path, argv[1], nullptr);
    if (how == 5) execlp(path, path, argv[1], nullptr);
    if (how == 6) execle(path, path, argv[1], nullptr, program.envp.data());
    if (how == 7) fexecve(open(path, O_RDONLY | O_CLOEXEC), argv, program.envp.data());
    return 2;
  });
  if (parent_closes_first) pair.server.reset();
  out.reset();
  auto sender =
      Async([&] { return SendAll(pair.client, Pattern(300'000)) && shutdown(pair.client, SHUT_WR) == 0; });
  REQUIRE(Get(sender));
  const std::string expected = "ore" + Pattern(300'000) + "bye";
  const std::string got = ReceiveExactly(pair.client, expected.size());
  REQUIRE(got.size() == expected.size());
  REQUIRE(Hash(got) == Hash(expected));
  REQUIRE(ExitedWith(Reap(pid), 0));
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("exec: a process that execs takes its connection along") {
  Listener listener = Listen();
  const bool unsent = GENERATE(false, true);
  const pid_t pid = Fork([&] {
    Silence();
    Fd server(accept(listener.fd, nullptr, nullptr));
    listener.fd.reset();
    if (ReceiveExactly(server, 3) != "one") return 1;
    if (unsent && !SendAll(server, Pattern(200'000, 9))) return 2;
    Program program("[.inherited-echo]", server);
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    return 3;
  });
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  listener.fd.reset();
  REQUIRE(SendAll(client, "one two"));
  auto sender = Async([&] { return SendAll(client, Pattern(1'000'000)) && shutdown(client, SHUT_WR) == 0; });
  const std::string got = ReceiveToEnd(client);
  REQUIRE(Get(sender));
  const std::string expected = (unsent ? Pattern(200'000, 9) : "") + " two" + Pattern(1'000'000) + "bye";
  REQUIRE(got.size() == expected.size());
  REQUIRE(Hash(got) == Hash(expected));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("exec: names, options and flags are as before") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Pair pair = MakePair(family);
  SetOption(pair.server, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(pair.server, SOL_SOCKET, SO_RCVLOWAT, 3);
  SetNonblocking(pair.server);
  const std::string names = LocalOf(pair.server).ToString() + " " + PeerOf(pair.server).ToString();
  const pid_t pid = Fork([&] {
    Silence();
    Program program("[.inherited-names]", pair.server);
    pair.client.reset();
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    return 3;
  });
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client) == names);
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("exec: one that fails leaves everything as it was") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "before"));
  REQUIRE(ReceiveExactly(pair.server, 3) == "bef");
  for (int i = 0; i < 3; ++i) {
    REQUIRE_ERRNO(execl("/nonexistent/program", "program", nullptr), ENOENT);
    REQUIRE_ERRNO(execl("/etc/passwd", "passwd", nullptr), EACCES);
    char* const argv[] = {nullptr};
    REQUIRE_ERRNO(fexecve(-1, argv, environ), EINVAL);
    REQUIRE_ERRNO(execvp("no-such-program-anywhere", argv), ENOENT);
  }
  REQUIRE(SendAll(pair.client, "after"));
  REQUIRE(ReceiveExactly(pair.server, 8) == "oreafter");
  const std::string data = Pattern(500'000);
  auto sender = Async([&] { return SendAll(pair.server, data); });
  REQUIRE(Hash(ReceiveExactly(pair.client, data.size())) == Hash(data));
  REQUIRE(Get(sender));
  REQUIRE(fcntl(pair.server, F_GETFD) == 0);
}

TEST_CASE("exec: a close-on-exec connection ends with the program that had it") {
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    pair.client.reset();
    fcntl(pair.server, F_SETFD, FD_CLOEXEC);
    execl("/bin/sleep", "sleep", "30", nullptr);
    return 1;
  });
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client).empty());
  kill(pid, SIGKILL);
  Reap(pid);
}

TEST_CASE("exec: what a connection that has been closed had to send arrives") {
  const size_t size = GENERATE(20'000, 150'000);
  const bool by_exec = GENERATE(false, true);  // close-on-exec
  const bool at = GENERATE(false, true);
  Listener listener = Listen();
  const pid_t pid = Fork([&] {
    fcntl(listener.fd, F_SETFD, FD_CLOEXEC);
    const int fd = TcpSocket().release();
    if (connect(fd, listener.address.get(), listener.address.length) != 0) return 1;
    if (!SendAll(fd, Pattern(size))) return 2;
    if (by_exec) {
      fcntl(fd, F_SETFD, FD_CLOEXEC);
    } else {
      close(fd);
    }
    char name[] = "true";
    char* const argv[] = {name, nullptr};
    at ? execveat(AT_FDCWD, "/bin/true", argv, environ, 0) : execve("/bin/true", argv, environ);
    return 3;
  });
  const Fd server(accept(listener.fd, nullptr, nullptr));
  CAPTURE(size, by_exec, at);
  std::string got;
  char room[8192];
  ssize_t n;
  while ((n = recv(server, room, sizeof room, 0)) > 0) got.append(room, static_cast<size_t>(n));
  const int error = errno;
  CHECK(got.size() == size);
  INFO(strerrorname_np(error));
  CHECK(n == 0);
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// What loads into a program that may not be read, nothing can tell: the connection reaches it over a bridge.
TEST_CASE("exec: a program that may be executed, and not read, gets the bytes of a connection") {
  if (geteuid() != 0) return sdp::test::Skipped("only root can make a file that others may not read");
  const bool at = GENERATE(false, true);
  CAPTURE(at);
  char directory[] = "/tmp/posix-exec-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string program = std::string(directory) + "/cat";
  REQUIRE(std::system(("cp /bin/cat " + program + " && chmod 0711 " + program + " " + directory).c_str()) ==
          0);
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    pair.client.reset();
    if (setuid(65534) != 0) return 1;
    if (dup2(pair.server, STDIN_FILENO) < 0 || dup2(pair.server, STDOUT_FILENO) < 0) return 2;
    pair.server.reset();
    char name[] = "cat";
    char* const argv[] = {name, nullptr};
    at ? execveat(AT_FDCWD, program.c_str(), argv, environ, 0) : execve(program.c_str(), argv, environ);
    return 3;
  });
  pair.server.reset();
  CHECK(SendAll(pair.client, "to and fro"));
  CHECK(shutdown(pair.client, SHUT_WR) == 0);
  CHECK(ReceiveToEnd(pair.client) == "to and fro");
  CHECK(ExitedWith(Reap(pid), 0));
  unlink(program.c_str());
  rmdir(directory);
}

TEST_CASE("exec: a listener is one in the new program") {
  Listener listener = Listen();
  const bool parent_keeps = GENERATE(false, true);
  const bool accepted_before = GENERATE(false, true);
  if (accepted_before) {
    Pair warm = ConnectTo(listener);
    REQUIRE(SendAll(warm.client, "x"));
  }
  const pid_t pid = Fork([&] {
    Silence();
    Program program("[.inherited-accept]", listener.fd);
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    return 1;
  });
  if (!parent_keeps) listener.fd.reset();
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(SendAll(client, "to the new program"));
  REQUIRE(shutdown(client, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(client) == "to the new program");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("exec: a bound socket listens in the new program") {
  Fd fd = TcpSocket();
  Address address = Loopback(AF_INET);
  REQUIRE(bind(fd, address.get(), address.length) == 0);
  address = LocalOf(fd);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    Silence();
    in.reset();
    setenv("POSIX_TEST_READY", std::to_string(out).c_str(), 1);
    Program program("[.inherited-listen]", fd);
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    return 1;
  });
  fd.reset();
  out.reset();
  REQUIRE(WaitFor(in, POLLHUP));
  Fd client = TcpSocket();
  REQUIRE(connect(client, address.get(), address.length) == 0);
  REQUIRE(SendAll(client, "hello"));
  REQUIRE(shutdown(client, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(client) == "hello");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("exec: posix_spawn with and without rearranged descriptors") {
  const bool rearranged = GENERATE(false, true);
  Pair pair = MakePair();
  const int number = rearranged ? 0 : pair.server.get();
  Program program("[.inherited-echo]", number);
  posix_spawn_file_actions_t actions;
  REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
  REQUIRE(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) == 0);
  if (rearranged) {
    REQUIRE(fcntl(pair.server, F_SETFD, FD_CLOEXEC) == 0);
    REQUIRE(posix_spawn_file_actions_adddup2(&actions, pair.server, 0) == 0);
  }
  REQUIRE(fcntl(pair.client, F_SETFD, FD_CLOEXEC) == 0);
  pid_t pid;
  REQUIRE(posix_spawn(&pid, program.path.c_str(), &actions, nullptr, program.argv.data(),
                      program.envp.data()) == 0);
  REQUIRE(posix_spawn_file_actions_destroy(&actions) == 0);
  pair.server.reset();
  CheckEcho(pair.client, Pattern(400'000));
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(posix_spawn(&pid, "/nonexistent", nullptr, nullptr, program.argv.data(), environ) == ENOENT);
}

TEST_CASE("exec: a program reads and writes its standard streams, and leaves the rest to exit") {
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    pair.client.reset();
    dup2(pair.server, 0);
    dup2(pair.server, 1);
    pair.server.reset();
    execl("/usr/bin/sort", "sort", nullptr);
    return 1;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "c\nb\na\n"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(pair.client) == "a\nb\nc\n");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("exec: vfork and exec, with the connection as standard input") {
  Pair pair = MakePair();
  Program program("[.inherited-echo]", 0);
  REQUIRE(fcntl(pair.client, F_SETFD, FD_CLOEXEC) == 0);
  REQUIRE(fcntl(pair.server, F_SETFD, FD_CLOEXEC) == 0);
  Fd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const pid_t pid = vfork();
  if (pid == 0) {
    dup2(pair.server, 0);
    dup2(null, 1);
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    _exit(1);
  }
  REQUIRE(pid > 0);
  pair.server.reset();
  CheckEcho(pair.client, Pattern(400'000));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("exec: a chain of programs, each of which leaves something for the next") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "first\nsecond\nthird\n"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  const pid_t pid = Fork([&] {
    pair.client.reset();
    dup2(pair.server, 0);
    dup2(pair.server, 1);
    pair.server.reset();
    execl("/bin/sh", "sh", "-c",
          "read a; echo got $a; exec sh -c 'read b; echo got $b; exec sh -c \"read c; echo got \\$c\"'",
          nullptr);
    return 1;
  });
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client) == "got first\ngot second\ngot third\n");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("exec: an emptied environment but for the preload changes nothing") {
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    Silence();
    Program program("[.inherited-echo]", pair.server);
    pair.client.reset();
    std::vector<std::string> words = {"env", "-i", program.number};
    for (const char* kept : {"LD_PRELOAD", "ASAN_OPTIONS", "TSAN_OPTIONS"}) {
      if (const char* value = getenv(kept)) words.push_back(std::string(kept) + "=" + value);
    }
    words.push_back(program.path);
    words.push_back(program.name);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp("env", argv.data());
    return 1;
  });
  pair.server.reset();
  CheckEcho(pair.client, Pattern(100'000));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// A program that no kernel runs, though its first bytes are those of one.
std::string BrokenProgram() {
  std::string path = "/tmp/posix-broken-XXXXXX";
  const Fd file(mkstemp(path.data()));
  const std::string text = "\177ELF\2\1\1" + std::string(100, 'x');
  REQUIRE(write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  REQUIRE(fchmod(file, 0755) == 0);
  return path;
}

TEST_CASE("exec: after one that failed, a connection that a child has, too, ends as ever") {
  Pair pair = MakePair();
  REQUIRE(fcntl(pair.client, F_SETFD, FD_CLOEXEC) == 0);
  const std::string path = BrokenProgram();
  const pid_t pid = Fork([&] {
    pair.server.reset();
    const pid_t child = Fork([] {
      pause();
      return 0;
    });
    std::atomic<pid_t> reader{0};
    std::thread([&] {
      reader = gettid();
      char byte;
      (void)!read(pair.client, &byte, 1);
    }).detach();
    if (!Eventually([&] { return reader != 0 && IsAsleep(reader); })) return 2;
    char* const argv[] = {const_cast<char*>("broken"), nullptr};
    if (execv(path.c_str(), argv) != -1 || errno != ENOEXEC) return 3;
    kill(child, SIGKILL);
    Reap(child);
    if (send(pair.client, "last", 4, MSG_MORE) != 4) return 4;
    exit(0);
  });
  pair.client.reset();
  CHECK(ReceiveToEnd(pair.server) == "last");
  CHECK(ExitedWith(Reap(pid), 0));
  unlink(path.c_str());
}

}  // namespace
}  // namespace posix_test
