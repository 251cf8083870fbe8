// Processes that hold a connection together after a fork, and every way in which one of them goes.
#include "test/posix/processes.h"

namespace posix_test {
namespace {

TEST_CASE("fork: the peer sees no end before the last holder has closed") {
  Pair pair = MakePair();
  Pipe closed;
  const pid_t pid = Fork([&] {
    pair.client.reset();
    closed.out.reset();
    if (!closed.HearEnd()) return 1;
    return SendAll(pair.server, "child") ? 0 : 2;
  });
  REQUIRE(SendAll(pair.server, "parent"));
  pair.server.reset();
  REQUIRE(ReceiveExactly(pair.client, 6) == "parent");
  REQUIRE(PollOne(pair.client, POLLIN, kQuietMs) == 0);
  closed.out.reset();
  REQUIRE(ReceiveToEnd(pair.client) == "child");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: a child killed, or gone by _exit or exec, leaves the connection to the parent") {
  Pair pair = MakePair();
  const int how = GENERATE(0, 1, 2);
  Pipe used;
  const pid_t pid = Fork([&]() -> int {
    SetOption(pair.client, SOL_SOCKET, SO_KEEPALIVE, 1);
    used.Tell();
    if (how == 1) _exit(0);
    if (how == 2) {
      fcntl(pair.client, F_SETFD, FD_CLOEXEC);
      fcntl(pair.server, F_SETFD, FD_CLOEXEC);
      execlp("sleep", "sleep", "30", nullptr);
    }
    for (;;) pause();
  });
  if (how == 1) {
    REQUIRE(ExitedWith(Reap(pid), 0));
  } else if (how == 2) {
    const std::string comm = "/proc/" + std::to_string(pid) + "/comm";
    REQUIRE(Eventually([&] {
      Fd file(open(comm.c_str(), O_RDONLY));
      char name[16] = {};
      return read(file, name, sizeof name - 1) > 0 && std::string(name) == "sleep\n";
    }));
  } else {
    // Not in the middle of a call: who dies there takes the connection along.
    REQUIRE(used.Hear());
    Kill(pid);
  }
  REQUIRE(SendAll(pair.client, "still here"));
  REQUIRE(ReceiveExactly(pair.server, 10) == "still here");
  pair.client.reset();
  REQUIRE(ReceiveToEnd(pair.server).empty());
  if (how == 2) Kill(pid);
}

TEST_CASE("fork: what the parent had not yet sent arrives, whoever closes last") {
  const bool child_last = GENERATE(false, true);
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const size_t filled = Fill(pair.client);
  Pipe closed;
  const pid_t pid = Fork([&] {
    pair.server.reset();
    closed.out.reset();
    return closed.HearEnd() ? 0 : 1;
  });
  if (!child_last) {
    closed.out.reset();
    REQUIRE(ExitedWith(Reap(pid), 0));
  }
  pair.client.reset();
  REQUIRE(ReceiveExactly(pair.server, filled).size() == filled);
  if (child_last) {
    REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
    closed.out.reset();
    REQUIRE(ExitedWith(Reap(pid), 0));
  }
  REQUIRE(ReceiveToEnd(pair.server).empty());
}

TEST_CASE(
    "fork: a child that has closed the connection with bytes unsent, and exits, leaves it to its parent") {
  Listener listener = Listen();
  for (int i = 0; i < 30; ++i) {
    CAPTURE(i);
    Pair pair = ConnectTo(listener);
    SetNonblocking(pair.client);
    Pipe told;
    const pid_t pid = Fork([&] {
      pair.server.reset();
      const size_t filled = Fill(pair.client);
      pair.client.reset();
      return write(told.out, &filled, sizeof filled) == sizeof filled ? 0 : 1;
    });
    size_t filled = 0;
    REQUIRE(read(told.in, &filled, sizeof filled) == sizeof filled);
    REQUIRE(ReceiveExactly(pair.server, filled).size() == filled);
    REQUIRE(ExitedWith(Reap(pid), 0));
    REQUIRE(SendAll(pair.client, "parent"));
    REQUIRE(ReceiveExactly(pair.server, 6) == "parent");
    pair.client.reset();
    REQUIRE(ReceiveToEnd(pair.server).empty());
  }
}

TEST_CASE("fork: a reset reaches the child that reads") {
  Pair pair = MakePair();
  const linger reset{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
  Pipe closed;
  const pid_t pid = Fork([&] {
    pair.server.reset();
    closed.Tell();
    char c;
    return recv(pair.client, &c, 1, 0) == -1 && errno == ECONNRESET ? 0 : 2;
  });
  REQUIRE(closed.Hear());
  pair.server.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
