// A client that connects and resets the connection before accept, as health checkers and port scanners do.
// Accept returns the socket and the client's address all the same.
#include <sys/wait.h>

#include "test/posix/listening/backlog_support.h"
#include "test/posix/processes.h"

namespace posix_test {
namespace {

// Resets its connection; the address that it had.
Address ConnectAndReset(Listener& listener) {
  Fd client = Connected(listener);
  const Address own = LocalOf(client);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  client.reset();
  return own;
}

// Empty, or what is wrong: children call it, too.
std::string AcceptReset(const Listener& listener, Address client) {
  if (!WaitFor(listener.fd, POLLIN)) return "nothing to accept";
  Address peer;
  Fd server(accept(listener.fd, peer.get(), &peer.length));
  if (server < 0) return strerror(errno);
  if (peer.length != client.length || peer.ToString() != client.ToString())
    return "accept told " + peer.ToString();
  Address own, other;
  if (getsockname(server, own.get(), &own.length) != 0 ||
      own.ToString() != Address(listener.address).ToString())
    return "getsockname";
  // Any of these may be the first to learn of the reset, or may come ahead of it.
  char c;
  if (!WaitFor(server, POLLIN) || recv(server, &c, 1, 0) != -1 || errno != ECONNRESET)
    return "no reset is read";
  if (getpeername(server, other.get(), &other.length) != -1 || errno != ENOTCONN) return "getpeername";
  return "";
}

TEST_CASE("reset before accept: the client's address is told") {
  Listener listener = Listen(GENERATE(AF_INET, AF_INET6));
  const bool waited = GENERATE(false, true);
  for (int round = 0; round < 10; ++round) {
    const Address client = ConnectAndReset(listener);
    if (waited) REQUIRE(HasWaiting(listener.fd, 1));
    REQUIRE(AcceptReset(listener, client) == "");
  }
}

TEST_CASE("reset before accept: several wait, in their order, and one that lives among them") {
  Listener listener = Listen(AF_INET, 128, SOCK_NONBLOCK);
  const Address first = ConnectAndReset(listener);
  const Address second = ConnectAndReset(listener);
  Fd client = Connected(listener);
  const Address third = ConnectAndReset(listener);
  REQUIRE(HasWaiting(listener.fd, 4));
  REQUIRE(AcceptReset(listener, first) == "");
  REQUIRE(AcceptReset(listener, second) == "");
  Address peer;
  Fd server(accept(listener.fd, peer.get(), &peer.length));
  REQUIRE(peer.ToString() == LocalOf(client).ToString());
  REQUIRE(SendAll(client, "alive"));
  SetNonblocking(server);
  REQUIRE(ReceiveExactly(server, 5) == "alive");
  REQUIRE(AcceptReset(listener, third) == "");
}

// One that waited before the listener was shared, and one that came afterwards.
TEST_CASE("reset before accept: a process that shares the listener is told") {
  const bool by_child = GENERATE(false, true);
  Listener listener = Listen();
  const Address before = ConnectAndReset(listener);
  REQUIRE(HasWaiting(listener.fd, 1));
  Pipe told;
  const pid_t pid = Fork([&] {
    Address after;
    if (read(told.in, &after, sizeof after) != sizeof after) return 1;
    if (!by_child) return 0;
    return AcceptReset(listener, before) != "" ? 2 : AcceptReset(listener, after) != "" ? 3 : 0;
  });
  const Address after = ConnectAndReset(listener);
  REQUIRE(HasWaiting(listener.fd, 2));
  if (!by_child) {
    REQUIRE(AcceptReset(listener, before) == "");
    REQUIRE(AcceptReset(listener, after) == "");
  }
  REQUIRE(write(told.out, &after, sizeof after) == sizeof after);
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
