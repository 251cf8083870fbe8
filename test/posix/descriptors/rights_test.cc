// Sockets passed in messages.
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstdlib>

#include "test/posix/processes.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

// Echoes to the end, then "bye".
int Echo(int fd) {
  const std::string got = ReceiveToEnd(fd);
  return SendAll(fd, got) && SendAll(fd, "bye") ? 0 : 1;
}

TEST_CASE("rights: a worker forked before has the connection passed to it") {
  const int type = GENERATE(SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET);
  const bool sender_keeps = GENERATE(false, true);
  UnixPair channel(type);
  const pid_t worker = Fork([&] {
    channel.a.reset();
    Fd fd(TakeFrom(channel.z, MSG_CMSG_CLOEXEC));
    if (fd < 0 || fcntl(fd, F_GETFD) != FD_CLOEXEC) return 10;
    return Echo(fd);
  });
  channel.z.reset();
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "read some, "));
  REQUIRE(ReceiveExactly(pair.server, 5) == "read ");
  REQUIRE(Pass(channel.a, pair.server));
  if (!sender_keeps) pair.server.reset();
  const std::string data = Pattern(2'000'000);
  auto sender = Async([&] { return SendAll(pair.client, data) && shutdown(pair.client, SHUT_WR) == 0; });
  const std::string expected = "some, " + data + "bye";
  const std::string got = ReceiveExactly(pair.client, expected.size());
  REQUIRE(Get(sender));
  REQUIRE(got.size() == expected.size());
  REQUIRE(Hash(got) == Hash(expected));
  REQUIRE(ExitedWith(Reap(worker), 0));
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

// The peer leaves what has come where it is, and waits for what does not come, or for nothing.
TEST_CASE("rights: a connection is passed behind a large write that nobody has read") {
  const bool peer_waits = GENERATE(true, false);
  UnixPair channel;
  const pid_t worker = Fork([&] {
    channel.a.reset();
    Fd fd(TakeFrom(channel.z));
    if (fd < 0) return 1;
    const std::string peer = PeerOf(fd).ToString();
    if (!SendAll(channel.z, peer)) return 2;
    if (!SendAll(fd, "behind") || shutdown(fd, SHUT_WR) != 0) return 3;
    return ReceiveToEnd(channel.z).empty()
               ? 0
               : 4;  // it leaves when the other side has seen that nothing else comes
  });
  channel.z.reset();
  const std::string data = Pattern(300'000, 6);
  Pair pair = MakePair();
  auto writer = Async([&] { return SendAll(pair.client, data); });
  REQUIRE(Get(writer));
  Pipe enough;
  auto waits = Async([&] {
    pollfd fds[] = {{peer_waits ? pair.server.get() : -1, POLLPRI, 0}, {enough.in, POLLIN, 0}};
    return poll(fds, 2, kPatienceMs) == 1 && fds[0].revents == 0;
  });
  REQUIRE(Pass(channel.a, pair.client));
  const std::string peer = PeerOf(pair.client).ToString();
  pair.client.reset();
  const std::string told = ReceiveExactly(channel.a, peer.size());
  REQUIRE(told == peer);
  enough.Tell();
  REQUIRE(Get(waits));
  channel.a.reset();
  const std::string got = ReceiveToEnd(pair.server);
  REQUIRE(got.size() == data.size() + 6);
  REQUIRE(Hash(got) == Hash(data + "behind"));
  REQUIRE(ExitedWith(Reap(worker), 0));
}

TEST_CASE("rights: many connections to two workers") {
  UnixPair channels[2];
  pid_t workers[2];
  for (int i = 0; i < 2; ++i) {
    workers[i] = Fork([&] {
      for (UnixPair& channel : channels) channel.a.reset();
      int fd;
      while ((fd = TakeFrom(channels[i].z)) >= 0) {
        Fd connection(fd);
        if (Echo(connection) != 0) return 1;
      }
      return 0;
    });
  }
  Listener listener = Listen();
  for (int i = 0; i < 30; ++i) {
    Pair pair = ConnectTo(listener);
    REQUIRE(Pass(channels[i % 2].a, pair.server));
    pair.server.reset();
    REQUIRE(SendAll(pair.client, Pattern(static_cast<size_t>(i) * 1000, 5)));
    REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
    REQUIRE(ReceiveToEnd(pair.client) == Pattern(static_cast<size_t>(i) * 1000, 5) + "bye");
  }
  for (UnixPair& channel : channels) channel.a.reset();
  for (const pid_t worker : workers) REQUIRE(ExitedWith(Reap(worker), 0));
}

TEST_CASE("rights: a connection made by a child is passed to its parent") {
  Listener listener = Listen();
  UnixPair channel;
  const pid_t pid = Fork([&] {
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    if (!SendAll(client, "from the child, ")) return 2;
    return Pass(channel.z, client) ? 0 : 3;
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  Fd client(TakeFrom(channel.a));
  REQUIRE(client >= 0);
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(SendAll(client, "from the parent"));
  REQUIRE(PeerOf(client).ToString() == listener.address.ToString());
  client.reset();
  REQUIRE(ReceiveToEnd(server) == "from the child, from the parent");
}

TEST_CASE("rights: to itself, and both are the same connection") {
  Pair pair = MakePair();
  UnixPair channel;
  REQUIRE(Pass(channel.a, pair.client));
  Fd other(TakeFrom(channel.z));
  REQUIRE(other >= 0);
  REQUIRE(SendAll(pair.client, "one "));
  REQUIRE(SendAll(other, "two "));
  REQUIRE(SendAll(pair.client, "three"));
  pair.client.reset();
  REQUIRE(SendAll(pair.server, "answer"));
  REQUIRE(ReceiveExactly(other, 6) == "answer");
  REQUIRE(ReceiveExactly(pair.server, 13) == "one two three");
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  other.reset();
  REQUIRE(ReceiveToEnd(pair.server).empty());
}

TEST_CASE("rights: nobody takes it, and the connection ends") {
  Pair pair = MakePair();
  UnixPair channel;
  REQUIRE(Pass(channel.a, pair.server));
  pair.server.reset();
  REQUIRE(PollOne(pair.client, POLLIN, kQuietMs) == 0);
  channel.a.reset();
  channel.z.reset();
  REQUIRE(WaitFor(pair.client, POLLIN));
}

TEST_CASE("rights: a static program has the connection passed to it") {
  const bool connects_still = GENERATE(false, true);
  // It serves a Unix address of its own, so that it can be told who it is.
  char name[40];
  snprintf(name, sizeof name, "posix-test-%d", getpid());
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    in.reset();
    Program program("take", out);
    program.Use("posix_static");
    setenv(kInheritedNumber, std::to_string(out).c_str(), 1);
    setenv("POSIX_TEST_NAME", name, 1);
    execv(program.path.c_str(), program.argv.data());
    return 100;
  });
  out.reset();
  REQUIRE(WaitFor(in, POLLHUP));
  Fd channel(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  memcpy(address.sun_path + 1, name, strlen(name));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + strlen(name));
  REQUIRE(connect(channel, reinterpret_cast<sockaddr*>(&address), length) == 0);
  if (connects_still) {
    Listener listener = Listen();
    Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
    REQUIRE((connect(client, listener.address.get(), listener.address.length) == 0 || errno == EINPROGRESS));
    SetNonblocking(client, false);
    REQUIRE(Pass(channel, client));
    client.reset();
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(SendAll(server, "made behind it; "));
    REQUIRE(shutdown(server, SHUT_WR) == 0);
    REQUIRE(ReceiveToEnd(server) == "made behind it; bye");
    REQUIRE(ExitedWith(Reap(pid), 0));
    return;
  }
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "read some, "));
  REQUIRE(ReceiveExactly(pair.server, 5) == "read ");
  REQUIRE(Pass(channel, pair.server));
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "and more"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(pair.client) == "some, and morebye");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("rights: a listener is passed") {
  UnixPair channel;
  const pid_t pid = Fork([&] {
    channel.a.reset();
    Fd listener(TakeFrom(channel.z));
    Fd server(accept(listener, nullptr, nullptr));
    return server >= 0 ? Echo(server) : 1;
  });
  Listener listener = Listen();
  REQUIRE(Pass(channel.a, listener.fd));
  listener.fd.reset();
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(SendAll(client, "hello"));
  REQUIRE(shutdown(client, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(client) == "hellobye");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// As an FTP server's: one process makes the connections for another one, and neither has a right to anything
// else.
TEST_CASE(
    "rights: locked in and without privileges, a connection is passed to a child that another user runs") {
  if (geteuid() != 0) return sdp::test::Skipped("only root may change its root and its user");
  const std::string before = "made before the processes were; ";
  const std::string data = Pattern(1'000'000);
  Listener listener = Listen();
  Pair earlier = ConnectTo(listener);
  char directory[] = "/tmp/posix-test-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const pid_t pid = Fork([&] {
    listener.fd.reset();
    UnixPair channel;
    const pid_t child = Fork([&] {
      channel.a.reset();
      if (chroot(directory) != 0 || setuid(65533) != 0) return 10;
      for (int i = 0; i < 2; ++i) {
        Fd fd(TakeFrom(channel.z));
        if (fd < 0 || !SendAll(fd, data) || shutdown(fd, SHUT_WR) != 0 || ReceiveToEnd(fd) != "got it")
          return 11 + i;
      }
      return 0;
    });
    channel.z.reset();
    if (!SendAll(earlier.client, before) || chroot(directory) != 0 || setuid(65534) != 0) return 1;
    for (int i = 0; i < 2; ++i) {
      Fd client = TcpSocket();
      if (connect(client, listener.address.get(), listener.address.length) != 0 || !Pass(channel.a, client))
        return 2 + i;
    }
    return ExitedWith(Reap(child), 0) ? 0 : 4;
  });
  REQUIRE(ReceiveExactly(earlier.server, before.size()) == before);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    const std::string got = ReceiveToEnd(server);
    REQUIRE(got.size() == data.size());
    REQUIRE(Hash(got) == Hash(data));
    REQUIRE(SendAll(server, "got it"));
  }
  REQUIRE(ExitedWith(Reap(pid), 0));
  rmdir(directory);
}

// As an FTP server's with TLS: the process that makes the connection and the one that encrypts have their
// pair from their parent, and neither sees the other, nor the parent.
TEST_CASE("rights: locked in, a connection is passed to a sibling over a pair that the parent made") {
  if (geteuid() != 0) return sdp::test::Skipped("only root may change its root and its user");
  const bool own_pids = GENERATE(false, true);
  if (own_pids && !ExitedWith(Reap(Fork([] { return unshare(CLONE_NEWPID) == 0 ? 0 : 1; })), 0))
    return sdp::test::SkippedInPart("no PID namespace can be made here");
  const std::string data = Pattern(1'000'000);
  Listener listener = Listen();
  Pair earlier = ConnectTo(listener);
  char directory[] = "/tmp/posix-test-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const pid_t pid = Fork([&] {
    listener.fd.reset();
    UnixPair channel;
    if (own_pids && unshare(CLONE_NEWPID) != 0) return 1;
    const pid_t taker = Fork([&] {
      channel.a.reset();
      if (chroot(directory) != 0 || setuid(65533) != 0) return 10;
      Fd fd(TakeFrom(channel.z));
      if (fd < 0 || !SendAll(fd, data) || shutdown(fd, SHUT_WR) != 0 || ReceiveToEnd(fd) != "got it")
        return 11;
      return ReceiveToEnd(channel.z).empty()
                 ? 0
                 : 12;  // as the first process of its namespace it outlives the other
    });
    const pid_t giver = Fork([&] {
      channel.z.reset();
      if (chroot(directory) != 0 || setuid(65534) != 0) return 20;
      Fd client = TcpSocket();
      if (connect(client, listener.address.get(), listener.address.length) != 0) return 21;
      return Pass(channel.a, client) ? 0 : 22;
    });
    channel.a.reset();
    return ExitedWith(Reap(giver), 0) && ExitedWith(Reap(taker), 0) ? 0 : 2;
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  const std::string got = ReceiveToEnd(server);
  REQUIRE(got.size() == data.size());
  REQUIRE(Hash(got) == Hash(data));
  REQUIRE(SendAll(server, "got it"));
  server.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
  rmdir(directory);
}

TEST_CASE("rights: locked in, a connection in a message that is lost is its sender's alone") {
  if (geteuid() != 0) return sdp::test::Skipped("only root may change its root and its user");
  const bool leaves = GENERATE(false, true);
  Listener listener = Listen();
  Pair earlier = ConnectTo(listener);
  char directory[] = "/tmp/posix-test-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const pid_t pid = Fork([&] {
    signal(SIGPIPE, SIG_IGN);
    listener.fd.reset();
    UnixPair channel;
    if (chroot(directory) != 0 || setuid(65534) != 0) return 1;
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 2;
    if (!leaves) channel.z.reset();
    if (Pass(channel.a, client) != leaves) return 3;
    channel.z.reset();
    return SendAll(client, "alone") ? 0 : 4;
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  errno = 0;
  REQUIRE(ReceiveToEnd(server) == "alone");
  REQUIRE(errno == 0);
  char c;
  REQUIRE(recv(server, &c, 1, 0) == 0);
  REQUIRE(ExitedWith(Reap(pid), 0));
  rmdir(directory);
}

TEST_CASE("rights: what is no socket of ours is passed as ever") {
  UnixPair channel;
  Pair pair = MakePair();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  REQUIRE(Pass(channel.a, in));
  Fd passed(TakeFrom(channel.z));
  REQUIRE(passed >= 0);
  REQUIRE(write(out, "x", 1) == 1);
  char c;
  REQUIRE(read(passed, &c, 1) == 1);
  REQUIRE_FALSE(Pass(channel.a, 12345));
  REQUIRE(errno == EBADF);
  REQUIRE(Pass(pair.client, in, "hi"));  // TCP takes the bytes and drops the rest
  REQUIRE(ReceiveExactly(pair.server, 2) == "hi");
}

// As a server's process that has locked itself in: another user than the receiver, and it makes no process
// any more. What it passes is the connection, or nothing at all.
TEST_CASE("rights: a process that may not fork passes no descriptor that is not the connection") {
  if (geteuid() != 0) return sdp::test::Skipped("only root becomes another user");
  constexpr uid_t kNobody = 65534;
  Pair pair = MakePair();
  char directory[] = "/tmp/posix-rights-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  REQUIRE(chmod(directory, 0755) == 0);
  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
  snprintf(name.sun_path, sizeof name.sun_path, "%s/s", directory);
  const auto* const address = reinterpret_cast<const sockaddr*>(&name);
  const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(listener, address, sizeof name) == 0);
  REQUIRE(chmod(name.sun_path, 0777) == 0);
  REQUIRE(listen(listener, 1) == 0);
  const pid_t sender = Fork([&] {
    pair.client.reset();
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) return 1;
    const Fd through(socket(AF_UNIX, SOCK_STREAM, 0));
    if (connect(through, address, sizeof name) != 0) return 2;
    if (ReceiveExactly(pair.server, 3) != "one") return 3;
    if (Pass(through, pair.server)) return 0;
    return SendAll(pair.server, "here") ? 0 : 4;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "one"));
  Fd through(accept(listener, nullptr, nullptr));
  Fd taken(TakeFrom(through));
  if (taken >= 0) REQUIRE(SendAll(taken, "here"));
  REQUIRE(ReceiveExactly(pair.client, 4) == "here");
  REQUIRE(ExitedWith(Reap(sender), 0));
  unlink(name.sun_path);
  rmdir(directory);
}

}  // namespace
}  // namespace posix_test
