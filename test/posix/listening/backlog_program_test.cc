// Clients that wait for a listener which another program gets, by exec, by posix_spawn or in a message: they
// are that one's.
#include <spawn.h>

#include "test/posix/listening/backlog_support.h"
#include "test/posix/processes.h"

namespace posix_test {
namespace {

TEST_CASE("serve three clients of an inherited listener", "[.inherited-backlog]") {
  REQUIRE(Serve(InheritedNumber(), 3, 'x'));
}

TEST_CASE("backlog: a program that gets the listener gets who waits for it") {
  const int how = GENERATE(
      0, 1, 2);  // fork and exec; posix_spawn; fork and exec of one that has waited for clients itself
  const bool parent_keeps = GENERATE(false, true);
  Listener listener = Listen();
  Pipe go;
  std::vector<Fd> clients;
  if (how != 2) clients = ConnectClients(listener, 3);
  for (const Fd& client : clients) REQUIRE(fcntl(client, F_SETFD, FD_CLOEXEC) == 0);
  Program program("[.inherited-backlog]", listener.fd);
  pid_t pid = -1;
  if (how == 1) {
    posix_spawn_file_actions_t actions;
    REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
    REQUIRE(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) == 0);
    REQUIRE(posix_spawn(&pid, program.path.c_str(), &actions, nullptr, program.argv.data(),
                        program.envp.data()) == 0);
    REQUIRE(posix_spawn_file_actions_destroy(&actions) == 0);
  } else {
    pid = Fork([&] {
      char c;
      if (how == 2 && (!WaitFor(listener.fd, POLLIN) || read(go.in, &c, 1) != 1)) return 7;
      Silence();
      execve(program.path.c_str(), program.argv.data(), program.envp.data());
      return 8;
    });
  }
  if (!parent_keeps) listener.fd.reset();
  if (how == 2) {
    clients = ConnectClients(listener, 3);
    REQUIRE(write(go.out, "x", 1) == 1);
  }
  REQUIRE(Servers(clients) == "xxx");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("backlog: a program that keeps the listener without knowing it") {
  Listener listener = Listen();
  const pid_t pid = Fork([] {
    execlp("sleep", "sleep", "30", nullptr);
    return 8;
  });
  std::vector<Fd> clients = ConnectClients(listener, 5);
  REQUIRE(Serve(listener.fd, 5, 'p'));
  REQUIRE(Servers(clients) == "ppppp");
  Kill(pid);
}

TEST_CASE("backlog: whoever is passed the listener gets who waits for it") {
  Listener listener = Listen();
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  Fd here(ends[0]), there(ends[1]);
  const pid_t pid = Fork([&] {
    listener.fd.reset();
    here.reset();
    const int fd = TakeFrom(there);
    return fd >= 0 && Serve(fd, 3, 'r') ? 0 : 2;
  });
  std::vector<Fd> clients = ConnectClients(listener, 3);
  REQUIRE(Pass(here, listener.fd));
  REQUIRE(Servers(clients) == "rrr");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
