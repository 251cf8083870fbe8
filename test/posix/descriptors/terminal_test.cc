// Terminals in the place of sockets: the C library's own descriptor calls.
#include <pty.h>
#include <utmp.h>

#include "test/posix/processes.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

// A program for terminals, from inetd: its child has one in the place of the sockets.
TEST_CASE("terminal: forkpty and login_tty put a terminal in the place of sockets") {
  const bool by_forkpty = GENERATE(true, false);
  const bool execs = GENERATE(true, false);
  int controller, terminal;
  if (openpty(&controller, &terminal, nullptr, nullptr, nullptr) != 0)
    return sdp::test::Skipped("no terminals here");
  Fd ours(controller), theirs(terminal);
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    pair.client.reset();
    for (int fd = 0; fd <= 2; ++fd) {
      if (dup2(pair.server, fd) != fd) return 1;
    }
    pair.server.reset();
    int other = ours;
    const pid_t child = by_forkpty ? forkpty(&other, nullptr, nullptr, nullptr) : fork();
    if (child == 0) {
      if (!by_forkpty && login_tty(theirs) != 0) _exit(2);
      alarm(kPatienceMs / 1000);
      if (execs) execl("/bin/sh", "sh", "-c", "read a; echo echo $a", nullptr);
      char c;
      if (read(0, &c, 1) != 1 || write(1, "echo", 4) != 4) _exit(3);
      _exit(0);
    }
    theirs.reset();
    if (child < 0 || write(other, "terminal\n", 9) != 9) return 4;
    std::string got;
    char c;
    while (got.find("echo") == std::string::npos && WaitFor(other, POLLIN) && read(other, &c, 1) == 1)
      got += c;
    if (got.find("echo") == std::string::npos || !ExitedWith(Reap(child), 0)) return 5;
    return write(1, "still a socket", 14) == 14 ? 0 : 6;
  });
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client) == "still a socket");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
