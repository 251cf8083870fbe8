// Sockets in programs that the preload does not reach: static ones, and an environment without it.
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <utility>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

// Forks, and execs the static program on `server`; `number`: which descriptor it shall have there.
pid_t ExecStatic(Pair& pair, const char* what, int number) {
  const pid_t pid = Fork([&] {
    pair.client.reset();
    if (number != pair.server) {
      dup2(pair.server, number);
      pair.server.reset();
    }
    Program program(what, number);
    program.Use("posix_static");
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    return 3;
  });
  return pid;
}

TEST_CASE("exec: a static program has the connection") {
  // Where the parent keeps a descriptor that is no standard one in the child, nobody knows who is to read.
  const auto [standard_input, parent_keeps] =
      GENERATE(std::pair(false, false), std::pair(true, false), std::pair(true, true));
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "one two"));
  REQUIRE(ReceiveExactly(pair.server, 3) == "one");
  const pid_t pid = ExecStatic(pair, "echo", standard_input ? 0 : pair.server.get());
  if (!parent_keeps) pair.server.reset();
  const std::string data = Pattern(3'000'000);
  auto sender = Async([&] { return SendAll(pair.client, data) && shutdown(pair.client, SHUT_WR) == 0; });
  const std::string expected = " two" + data + "bye";
  const std::string got = ReceiveExactly(pair.client, expected.size());
  REQUIRE(Get(sender));
  REQUIRE(got.size() == expected.size());
  REQUIRE(Hash(got) == Hash(expected));
  REQUIRE(ExitedWith(Reap(pid), 0));
  if (parent_keeps) {
    REQUIRE(SendAll(pair.server, "parent"));
    pair.server.reset();
    REQUIRE(ReceiveToEnd(pair.client) == "parent");
  }
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("exec: a static program that posix_spawn starts has the connection") {
  const auto [rearranged, parent_keeps] =
      GENERATE(std::pair(false, false), std::pair(true, false), std::pair(true, true));  // likewise
  Pair pair = MakePair(), other = MakePair();
  Program program("echo", rearranged ? 0 : pair.server.get());
  program.Use("posix_static");
  posix_spawn_file_actions_t actions;
  REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
  for (const Fd* fd : {&pair.client, &other.client, &other.server})
    REQUIRE(fcntl(*fd, F_SETFD, FD_CLOEXEC) == 0);
  if (rearranged) {
    REQUIRE(fcntl(pair.server, F_SETFD, FD_CLOEXEC) == 0);
    REQUIRE(posix_spawn_file_actions_adddup2(&actions, pair.server, 0) == 0);
  }
  pid_t pid;
  REQUIRE(posix_spawn(&pid, program.path.c_str(), &actions, nullptr, program.argv.data(),
                      program.envp.data()) == 0);
  REQUIRE(posix_spawn_file_actions_destroy(&actions) == 0);
  REQUIRE(fcntl(pair.server, F_GETFD) == (rearranged ? FD_CLOEXEC : 0));
  if (!parent_keeps) pair.server.reset();
  const std::string data = Pattern(3'000'000);
  auto sender = Async([&] { return SendAll(pair.client, data) && shutdown(pair.client, SHUT_WR) == 0; });
  const std::string got = ReceiveExactly(pair.client, data.size() + 3);
  REQUIRE(Get(sender));
  REQUIRE(got.size() == data.size() + 3);
  REQUIRE(Hash(got) == Hash(data + "bye"));
  REQUIRE(ExitedWith(Reap(pid), 0));
  if (parent_keeps) {
    REQUIRE(SendAll(pair.server, "parent"));
    pair.server.reset();
    REQUIRE(ReceiveToEnd(pair.client) == "parent");
  }
  REQUIRE(ReceiveToEnd(pair.client).empty());
  REQUIRE(SendAll(other.client, "untouched"));
  REQUIRE(ReceiveExactly(other.server, 9) == "untouched");
}

TEST_CASE("exec: resets reach a static program, and come from it") {
  const bool from_program = GENERATE(false, true);
  Pair pair = MakePair();
  const pid_t pid = ExecStatic(pair, from_program ? "reset" : "wait", pair.server);
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "x"));
  if (from_program) {
    REQUIRE(ExitedWith(Reap(pid), 0));
    char c;
    REQUIRE_ERRNO(recv(pair.client, &c, 1, 0), ECONNRESET);
    return;
  }
  const linger reset{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
  pair.client.reset();
  REQUIRE(ExitedWith(Reap(pid), ECONNRESET));
}

TEST_CASE("exec: a static program that is killed, or ends with data unread, ends the connection") {
  Pair pair = MakePair();
  const pid_t pid = ExecStatic(pair, "wait", pair.server);
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "hello"));
  REQUIRE(PollOne(pair.client, POLLIN, kQuietMs) == 0);
  REQUIRE(kill(pid, SIGKILL) == 0);
  Reap(pid);
  char c;
  REQUIRE(recv(pair.client, &c, 1, 0) <= 0);
}

TEST_CASE("exec: no process stays behind a static program whose peer was gone first") {
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  RemoteClient remote = ServeClient([](int fd) { return SendAll(fd, "the last word") ? 0 : 1; });
  Pair pair;
  pair.server = std::move(remote.server);
  REQUIRE(WaitFor(pair.server, POLLIN));
  const pid_t pid = ExecStatic(pair, "wait", pair.server);
  pair.server.reset();
  REQUIRE(ExitedWith(Reap(pid), 200));
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
  REQUIRE(Eventually([] {
    while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
    return errno == ECHILD;
  }));
  REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}

// What the program has is the connect that goes on, or none.
TEST_CASE("exec: of a connect that takes its time no program has what is not the connection", "[mixed]") {
  const auto [spawned, seen] =
      GENERATE(std::pair(false, false), std::pair(false, true), std::pair(true, false));
  Pipe stops;
  const pid_t server_pid = Fork([&] {
    Listener listener = Listen();
    if (write(stops.out, &listener.address, sizeof listener.address) != sizeof listener.address) return 1;
    raise(SIGSTOP);
    Fd server(accept(listener.fd, nullptr, nullptr));
    return server >= 0 && SendAll(server, "hello") && shutdown(server, SHUT_WR) == 0 &&
                   ReceiveToEnd(server) == "hellobye"
               ? 0
               : 2;
  });
  Address address;
  REQUIRE(WaitFor(stops.in, POLLIN));
  REQUIRE(read(stops.in, &address, sizeof address) == sizeof address);
  int status = 0;
  REQUIRE(waitpid(server_pid, &status, WUNTRACED) == server_pid);
  REQUIRE(WIFSTOPPED(status));
  Pipe goes_on;
  const pid_t pid = Fork([&, spawned = spawned, seen = seen] {
    Fd fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
    if (connect(fd, address.get(), address.length) != 0 && errno != EINPROGRESS) return 1;
    SetNonblocking(fd, false);
    Silence();
    Program program(seen ? "[.inherited-echo]" : "echo", fd);
    if (!seen) program.Use("posix_static");
    goes_on.in.reset();
    if (!spawned) {
      execve(program.path.c_str(), program.argv.data(), program.envp.data());
      return 3;
    }
    pid_t pid;
    if (posix_spawn(&pid, program.path.c_str(), nullptr, nullptr, program.argv.data(), program.envp.data()) !=
        0)
      return 4;
    goes_on.out.reset();
    // It reads from what is not connected; then the connect is this process's alone.
    return ExitedWith(Reap(pid), 0) || SendAll(fd, ReceiveToEnd(fd) + "bye") ? 0 : 5;
  });
  goes_on.out.reset();
  REQUIRE(goes_on.HearEnd());
  REQUIRE(kill(server_pid, SIGCONT) == 0);
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(ExitedWith(Reap(server_pid), 0));
}

TEST_CASE("exec: an environment without the preload") {
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    Silence();
    pair.client.reset();
    char* const argv[] = {const_cast<char*>("sh"), const_cast<char*>("-c"),
                          const_cast<char*>("read a; echo got $a"), nullptr};
    char* const envp[] = {nullptr};
    dup2(pair.server, 0);
    dup2(pair.server, 1);
    pair.server.reset();
    execve("/bin/sh", argv, envp);
    return 1;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "something\n"));
  REQUIRE(ReceiveToEnd(pair.client) == "got something\n");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("exec: a program that turns out to be none leaves everything as it was") {
  Pair pair = MakePair();
  char path[] = "/tmp/posix-test-XXXXXX";
  Fd file(mkstemp(path));
  REQUIRE(write(file, "neither", 7) == 7);
  REQUIRE(fchmod(file, 0700) == 0);
  file.reset();
  char* const envp[] = {nullptr};
  char* const argv[] = {const_cast<char*>("nothing"), nullptr};
  for (int i = 0; i < 3; ++i) {
    REQUIRE_ERRNO(execve("/nonexistent", argv, envp), ENOENT);
    REQUIRE_ERRNO(execve(path, argv, envp), ENOEXEC);
    REQUIRE_ERRNO(execve(path, argv, environ), ENOEXEC);
    REQUIRE(SendAll(pair.client, "after"));
    REQUIRE(ReceiveExactly(pair.server, 5) == "after");
  }
  REQUIRE(unlink(path) == 0);
  const std::string data = Pattern(500'000);
  auto sender = Async([&] { return SendAll(pair.server, data); });
  REQUIRE(Hash(ReceiveExactly(pair.client, data.size())) == Hash(data));
  REQUIRE(Get(sender));
  int status;
  REQUIRE_ERRNO(waitpid(-1, &status, WNOHANG), ECHILD);
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

}  // namespace
}  // namespace posix_test
