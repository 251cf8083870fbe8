// Sockets in messages while they connect.
#include <sys/wait.h>

#include "test/posix/processes.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

constexpr int kNativeFamily = 27;
constexpr uid_t kNobody = 65534;

// Also in a child: no assertion. -1: it does not connect.
int Connecting(Address address, int family = AF_INET) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
  return fd >= 0 && (connect(fd, address.get(), address.length) == 0 || errno == EINPROGRESS) ? fd : -1;
}

// Who has been passed it waits as who connects does, then echoes to the end, then says "bye".
int EchoOnceConnected(int fd) {
  if (!WaitFor(fd, POLLOUT)) return 11;
  int error = -1;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) return 12;
  Address peer;
  if (getpeername(fd, peer.get(), &peer.length) != 0) return 13;
  SetNonblocking(fd, false);
  const std::string got = ReceiveToEnd(fd);
  return SendAll(fd, got + "bye") ? 0 : 14;
}

bool BecomeNobody(bool for_good) {
  return for_good ? setgid(kNobody) == 0 && setuid(kNobody) == 0
                  : setegid(kNobody) == 0 && seteuid(kNobody) == 0;
}

// One that leaves its clients' hands alone for as long as it is stopped, and then echoes to the first.
struct StoppedServer {
  StoppedServer() {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    Fd hears(ends[0]), tells(ends[1]);
    pid = Fork([&] {
      Listener listener = Listen();
      if (write(tells, &listener.address, sizeof listener.address) != sizeof listener.address) return 1;
      raise(SIGSTOP);
      Fd server(accept(listener.fd, nullptr, nullptr));
      return server >= 0 ? EchoOnceConnected(server) : 2;
    });
    REQUIRE(WaitFor(hears, POLLIN));
    REQUIRE(read(hears, &address, sizeof address) == sizeof address);
    int status = 0;
    REQUIRE(waitpid(pid, &status, WUNTRACED) == pid);
    REQUIRE(WIFSTOPPED(status));
  }
  void Continue() { REQUIRE(kill(pid, SIGCONT) == 0); }
  pid_t pid = -1;
  Address address;
};

// As a proxy whose one process connects for another one. Root has made what is between the two.
TEST_CASE("rights: a connect that is under way goes to another user's process") {
  if (geteuid() != 0) return sdp::test::Skipped("only root becomes another user");
  const int type = GENERATE(SOCK_STREAM, SOCK_DGRAM);
  const bool for_good = GENERATE(false, true);
  Listener listener = Listen();
  UnixPair channel(type);
  const pid_t receiver = Fork([&] {
    if (!BecomeNobody(for_good)) return 1;
    Fd fd(TakeFrom(channel.z));
    return fd >= 0 ? EchoOnceConnected(fd) : 2;
  });
  const pid_t sender = Fork([&] {
    if (!BecomeNobody(for_good)) return 1;
    Fd fd(Connecting(listener.address));
    errno = 0;
    return fd >= 0 && Pass(channel.a, fd) && errno == 0 ? 0 : 2;
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(ExitedWith(Reap(sender), 0));
  const std::string data = Pattern(300'000);
  auto writer = Async([&] { return SendAll(server, data) && shutdown(server, SHUT_WR) == 0; });
  const std::string got = ReceiveToEnd(server);
  REQUIRE(Get(writer));
  REQUIRE(got.size() == data.size() + 3);
  REQUIRE(Hash(got) == Hash(data + "bye"));
  REQUIRE(ExitedWith(Reap(receiver), 0));
}

TEST_CASE("rights: a connect that takes its time goes to another process", "[mixed]") {
  const bool of_another_user = GENERATE(false, true);
  if (of_another_user && geteuid() != 0) return sdp::test::Skipped("only root becomes another user");
  StoppedServer server;
  UnixPair channel;
  const pid_t sender = Fork([&] {
    if (of_another_user && !BecomeNobody(true)) return 1;
    Fd fd(Connecting(server.address));
    if (fd < 0 || !Pass(channel.a, fd)) return 2;
    // It has it, too.
    if (!WaitFor(channel.a, POLLIN)) return 3;
    return PeerOf(fd).ToString() == server.address.ToString() ? 0 : 4;
  });
  Fd fd(TakeFrom(channel.z));
  REQUIRE(fd >= 0);
  server.Continue();
  REQUIRE(WaitFor(fd, POLLOUT));
  REQUIRE(GetOption(fd, SOL_SOCKET, SO_ERROR) == 0);
  REQUIRE(PeerOf(fd).ToString() == server.address.ToString());
  REQUIRE(SendAll(channel.z, "x"));
  REQUIRE(ExitedWith(Reap(sender), 0));
  SetNonblocking(fd, false);
  REQUIRE(SendAll(fd, "hello"));
  REQUIRE(shutdown(fd, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(fd) == "hellobye");
  REQUIRE(ExitedWith(Reap(server.pid), 0));
}

TEST_CASE("rights: a connect that takes its time and may be SDP alone goes to nobody, and goes on",
          "[native]") {
  StoppedServer server;
  UnixPair channel;
  Fd fd(Connecting(server.address, kNativeFamily));
  if (fd < 0) return sdp::test::Skipped("nothing serves AF_INET_SDP here");
  REQUIRE_FALSE(Pass(channel.a, fd));
  REQUIRE(errno == ENOBUFS);
  REQUIRE(PollOne(channel.z, POLLIN, 0) == 0);
  server.Continue();
  REQUIRE(WaitFor(fd, POLLOUT));
  REQUIRE(Pass(channel.a, fd));
  Fd taken(TakeFrom(channel.z));
  fd.reset();
  SetNonblocking(taken, false);
  REQUIRE(SendAll(taken, "hello"));
  REQUIRE(shutdown(taken, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(taken) == "hellobye");
  REQUIRE(ExitedWith(Reap(server.pid), 0));
}

}  // namespace
}  // namespace posix_test
