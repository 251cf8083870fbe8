// Sockets that several processes have before they are connected, or that a process has twice: what becomes of
// one becomes of all.
#include <sys/socket.h>

#include <string>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

Fd PassedToMyself(int fd) {
  const UnixPair through;
  REQUIRE(Pass(through.a, fd));
  Fd passed(TakeFrom(through.z));
  REQUIRE(passed >= 0);
  return passed;
}

}  // namespace

TEST_CASE("common socket: parent and child have it, one connects it, both send", "[plain]") {
  const bool child_connects = GENERATE(false, true);
  Listener listener = Listen();
  const Fd client = TcpSocket();
  Pipe connected, sent;
  const auto connects = [&] { return connect(client, listener.address.get(), listener.address.length) == 0; };
  const pid_t pid = Fork([&] {
    if (child_connects) {
      if (!connects()) return 1;
      connected.Tell();
    } else if (!connected.Hear()) {
      return 2;
    }
    if (PollOne(client, POLLOUT) != POLLOUT || PeerOf(client).ToString() != listener.address.ToString())
      return 3;
    if (!SendAll(client, "child")) return 4;
    sent.Tell();
    return ReceiveExactly(client, 6) == "answer" ? 0 : 5;
  });
  if (child_connects) {
    REQUIRE(connected.Hear());
  } else {
    REQUIRE(connects());
    connected.Tell();
  }
  REQUIRE(sent.Hear());
  REQUIRE(SendAll(client, "parent"));
  const Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(ReceiveExactly(server, 11) == "childparent");
  REQUIRE(SendAll(server, "answer"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("common socket: one process listens, the other accepts", "[plain]") {
  Fd listener = TcpSocket();
  Address here = Loopback(AF_INET);
  REQUIRE(bind(listener, here.get(), here.length) == 0);
  here = LocalOf(listener);
  Pipe listens;
  const pid_t pid = Fork([&] {
    if (!listens.Hear()) return 1;
    const Fd server(accept(listener, nullptr, nullptr));
    return server >= 0 && SendAll(server, ReceiveExactly(server, 4)) ? 0 : 2;
  });
  REQUIRE(listen(listener, 5) == 0);
  listens.Tell();
  const Fd client = TcpSocket();
  REQUIRE(connect(client, here.get(), here.length) == 0);
  REQUIRE(SendAll(client, "echo"));
  REQUIRE(ReceiveExactly(client, 4) == "echo");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// Who becomes a daemon between bind and listen, or socket and connect.
TEST_CASE("common socket: a parent that leaves at once is none that has it") {
  Listener listener = Listen();
  Fd own = TcpSocket();
  Address here = Loopback(AF_INET);
  REQUIRE(bind(own, here.get(), here.length) == 0);
  here = LocalOf(own);
  Fd client = TcpSocket();
  Pipe closed;
  Pipe listens;
  const pid_t parent = Fork([&]() -> int {
    const pid_t grandchild = fork();
    if (grandchild != 0) _exit(grandchild > 0 ? 0 : 1);
    if (!closed.Hear()) _exit(1);
    if (listen(own, 5) != 0 || connect(client, listener.address.get(), listener.address.length) != 0)
      _exit(1);
    listens.Tell();
    const Fd server(accept(own, nullptr, nullptr));
    _exit(SendAll(client, ReceiveExactly(server, 4)) ? 0 : 1);
  });
  own.reset();
  client.reset();
  closed.Tell();
  REQUIRE(listens.Hear());
  const Fd talks = TcpSocket();
  REQUIRE(connect(talks, here.get(), here.length) == 0);
  REQUIRE(SendAll(talks, "echo"));
  const Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(ReceiveExactly(server, 4) == "echo");
  REQUIRE(ExitedWith(Reap(parent), 0));
}

TEST_CASE("common socket: one without a connection that a process passes to itself is the same one") {
  Listener listener = Listen();
  const Fd client = TcpSocket();
  const Fd again = PassedToMyself(client);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  const Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE_ERRNO(connect(again, listener.address.get(), listener.address.length), EISCONN);
  REQUIRE(PollOne(again, POLLIN | POLLOUT, 0) == POLLOUT);
  REQUIRE(SendAll(server, "ab"));
  REQUIRE(ReceiveExactly(again, 1) == "a");
  REQUIRE(ReceiveExactly(client, 1) == "b");
  REQUIRE(SendAll(again, "c"));
  REQUIRE(SendAll(client, "d"));
  REQUIRE(ReceiveExactly(server, 2) == "cd");
}

TEST_CASE("common socket: a listener by another number that a process passes to itself") {
  const bool listens_before = GENERATE(false, true);
  Fd listener = TcpSocket();
  Address here = Loopback(AF_INET);
  REQUIRE(bind(listener, here.get(), here.length) == 0);
  here = LocalOf(listener);
  if (listens_before) REQUIRE(listen(listener, 5) == 0);
  const Fd again = PassedToMyself(listener);
  if (!listens_before) REQUIRE(listen(again, 5) == 0);
  for (Fd* const by : {&listener, const_cast<Fd*>(&again)}) {
    const Fd client = TcpSocket();
    REQUIRE(connect(client, here.get(), here.length) == 0);
    REQUIRE(WaitFor(*by, POLLIN));
    const Fd server(accept(*by, nullptr, nullptr));
    REQUIRE(SendAll(server, "x"));
    REQUIRE(ReceiveExactly(client, 1) == "x");
  }
}

TEST_CASE("common socket: a connection passed to oneself, and exec with both numbers") {
  Pair pair = MakePair();
  const bool unread = GENERATE(false, true);
  const pid_t pid = Fork([&] {
    Silence();
    pair.client.reset();
    const Fd again = PassedToMyself(pair.server);
    if (unread && !SendAll(again, Pattern(30'000, 3))) return 1;
    Program program("[.inherited-echo]", again);
    fcntl(again, F_SETFD, 0);
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    return 2;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, Pattern(20'000, 4)));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  const std::string got = ReceiveToEnd(pair.client);
  REQUIRE(Hash(got) == Hash((unread ? Pattern(30'000, 3) : "") + Pattern(20'000, 4) + "bye"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace posix_test
