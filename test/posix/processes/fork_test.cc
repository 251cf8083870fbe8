// Connections that several processes hold after a fork: accept and fork, in turn, and both at once.
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>

#include "test/posix/full_listener.h"
#include "test/posix/processes.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

TEST_CASE("fork: the child of a server answers, the parent closes at once") {
  Listener listener = Listen();
  for (int i = 0; i < 5; ++i) {
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    const std::string request = Pattern(i * 70'000 + 5);
    auto sender = Async([&] { return SendAll(client, request) && shutdown(client, SHUT_WR) == 0; });
    Fd server(accept(listener.fd, nullptr, nullptr));
    const pid_t pid = Fork([&] {
      client.reset();
      const std::string got = ReceiveToEnd(server);
      return SendAll(server, got) && SendAll(server, "done") ? 0 : 1;
    });
    server.reset();
    REQUIRE(Get(sender));
    const std::string got = ReceiveToEnd(client);
    REQUIRE(got.size() == request.size() + 4);
    REQUIRE(Hash(got) == Hash(request + "done"));
    REQUIRE(ExitedWith(Reap(pid), 0));
  }
}

TEST_CASE("fork: a process that has accepted and does not come back leaves the others to its sibling") {
  constexpr int kLater = 7;
  Listener listener = Listen(AF_INET, 128, SOCK_NONBLOCK);
  Pipe started, resume, accepted;
  const auto Accept = [&](char name) {
    const int fd = WaitFor(listener.fd, POLLIN, 2 * kPatienceMs) ? accept(listener.fd, nullptr, nullptr) : -1;
    if (fd >= 0) (void)!write(accepted.out, &name, 1);
  };
  const auto Worker = [&](char name, const Pipe& begin, int at_once) {
    for (int i = 0; i < at_once; ++i) Accept(name);
    char c;
    if (read(begin.in, &c, 1) != 1) return 1;
    for (;;) Accept(name);
  };
  const pid_t first = Fork([&] { return Worker('1', resume, 1); });
  const pid_t second = Fork([&] { return Worker('2', started, 0); });
  listener.fd.reset();
  std::vector<Fd> sockets;
  const auto Connect = [&] {
    const int fd = sockets.emplace_back(TcpSocket());
    return Async(
        [fd, &listener] { return connect(fd, listener.address.get(), listener.address.length) == 0; });
  };
  const auto NextAccepted = [&] {
    char name = 0;
    return WaitFor(accepted.in, POLLIN) && read(accepted.in, &name, 1) == 1 ? name : '-';
  };

  std::vector<std::future<bool>> clients;
  clients.push_back(Connect());
  REQUIRE(NextAccepted() == '1');
  for (int i = 0; i < kLater; ++i) clients.push_back(Connect());
  REQUIRE(PollOne(accepted.in, POLLIN, kQuietMs) == 0);
  started.Tell();
  for (int i = 0; i < kLater - 1; ++i) REQUIRE(NextAccepted() == '2');  // one may already be the first's
  resume.Tell();
  REQUIRE(NextAccepted() != '-');
  for (auto& client : clients) REQUIRE(Get(client));
  for (const pid_t pid : {first, second}) Kill(pid);
}

TEST_CASE("fork: parent and children write in turn") {
  Pair pair = MakePair();
  std::string expected;
  for (int i = 0; i < 10; ++i) {
    const std::string mine = Pattern(static_cast<size_t>(i) * 997 + 3, static_cast<uint32_t>(i));
    const std::string childs = Pattern(static_cast<size_t>(i) * 331 + 7, static_cast<uint32_t>(i + 50));
    REQUIRE(SendAll(pair.client, mine));
    REQUIRE(ExitedWith(Reap(Fork([&] { return SendAll(pair.client, childs) ? 0 : 1; })), 0));
    expected += mine + childs;
  }
  pair.client.reset();
  REQUIRE(Hash(ReceiveToEnd(pair.server)) == Hash(expected));
}

TEST_CASE("fork: parent and children read in turn") {
  Pair pair = MakePair();
  const std::string data = Pattern(200'000);
  REQUIRE(SendAll(pair.client, data));
  REQUIRE(ReceiveExactly(pair.server, 1000) == data.substr(0, 1000));
  for (size_t at = 1000; at < 101'000; at += 20'000) {
    const pid_t pid =
        Fork([&] { return ReceiveExactly(pair.server, 10'000) == data.substr(at, 10'000) ? 0 : 1; });
    REQUIRE(ExitedWith(Reap(pid), 0));
    REQUIRE(ReceiveExactly(pair.server, 10'000) == data.substr(at + 10'000, 10'000));
  }
  pair.client.reset();
  REQUIRE(Hash(ReceiveToEnd(pair.server)) == Hash(data.substr(101'000)));
}

TEST_CASE("fork: who asks how much is there takes no more from the others than TCP would hold") {
  const auto began = std::chrono::steady_clock::now();
  Pair pair = MakePair();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    out.reset();
    char c;
    return read(in, &c, 1) == 0 ? 0 : 1;  // when the parent has asked
  });
  SetNonblocking(pair.server);
  const std::string data(64 << 10, 'x');
  int asked = 0;
  for (int i = 0; i < 200; ++i) {
    while (send(pair.server, data.data(), data.size(), MSG_NOSIGNAL) > 0) {
    }
    int there = 0;
    REQUIRE(ioctl(pair.client, FIONREAD, &there) == 0);
    // From then on the helper thread may have read, too.
    if (i > 0 && std::chrono::steady_clock::now() - began > std::chrono::milliseconds(800)) break;
    asked = there;
  }
  REQUIRE(asked > 0);
  REQUIRE(asked < 1 << 20);
  out.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: one process reads while another writes") {
  const std::string up = Pattern(6'000'000, 3), down = Pattern(5'000'000, 4);
  RemoteClient remote = ServeClient([&](int fd) { return Exchange(fd, up, down); });
  const pid_t writer =
      Fork([&] { return SendAll(remote.server, down) && shutdown(remote.server, SHUT_WR) == 0 ? 0 : 1; });
  const std::string got = ReceiveToEnd(remote.server);
  REQUIRE(got.size() == up.size());
  REQUIRE(Hash(got) == Hash(up));
  REQUIRE(ExitedWith(Reap(writer), 0));
  remote.server.reset();
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

TEST_CASE("fork: the writer is the parent, the reader the child") {
  const std::string up = Pattern(6'000'000, 3), down = Pattern(5'000'000, 4);
  RemoteClient remote = ServeClient([&](int fd) { return Exchange(fd, up, down); });
  const pid_t reader = Fork([&] { return Hash(ReceiveToEnd(remote.server)) == Hash(up) ? 0 : 1; });
  REQUIRE(SendAll(remote.server, down));
  REQUIRE(shutdown(remote.server, SHUT_WR) == 0);
  REQUIRE(ExitedWith(Reap(reader), 0));
  remote.server.reset();
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

TEST_CASE("fork: both processes write at once, no message is torn or lost") {
  constexpr size_t kRecord = 64;
  constexpr int kRecords = 3000;
  RemoteClient remote = ServeClient([&](int fd) {
    errno = 0;
    const std::string got = ReceiveToEnd(fd);
    if (got.size() != 2 * kRecords * kRecord) {
      fprintf(stderr, "received %zu bytes, %s\n", got.size(), strerror(errno));
      return 1;
    }
    int next[2] = {0, 0};
    for (size_t at = 0; at < got.size(); at += kRecord) {
      const int who = got[at] - 'a';
      if (who != 0 && who != 1) return 2;
      char expected[kRecord + 1];
      snprintf(expected, sizeof expected, "%c%063d", 'a' + who, next[who]++);
      if (got.compare(at, kRecord, expected) != 0) return 3;
    }
    return 0;
  });
  const auto write_all = [&](char who) {
    for (int i = 0; i < kRecords; ++i) {
      char record[kRecord + 1];
      snprintf(record, sizeof record, "%c%063d", who, i);
      if (send(remote.server, record, kRecord, 0) != static_cast<ssize_t>(kRecord)) return 1;
    }
    return 0;
  };
  const pid_t pid = Fork([&] { return write_all('b'); });
  REQUIRE(write_all('a') == 0);
  remote.server.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

TEST_CASE("fork: grandchildren, and a chain in which each closes before the next writes") {
  Pair pair = MakePair();
  const pid_t pid = Fork([&] {
    pair.server.reset();
    if (!SendAll(pair.client, "1")) return 1;
    for (char c = '2'; c < '6'; ++c) {
      const pid_t next = fork();
      if (next < 0) return 2;
      if (next > 0) {
        pair.client.reset();
        int status;
        waitpid(next, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
      }
      if (!SendAll(pair.client, std::string(1, c))) return 4;
    }
    return 0;
  });
  pair.client.reset();
  REQUIRE(ReceiveToEnd(pair.server) == "12345");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: many children hold one connection and each says a word") {
  Pair pair = MakePair();
  std::vector<pid_t> pids;
  for (int i = 0; i < 20; ++i) pids.push_back(Fork([&] { return SendAll(pair.client, "word") ? 0 : 1; }));
  pair.client.reset();
  REQUIRE(ReceiveToEnd(pair.server).size() == 20 * 4);
  for (const pid_t pid : pids) REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: shutdown by one process ends the stream for both") {
  Pair pair = MakePair();
  REQUIRE(ExitedWith(Reap(Fork([&] { return shutdown(pair.client, SHUT_WR) == 0 ? 0 : 1; })), 0));
  REQUIRE(ReceiveToEnd(pair.server).empty());
  REQUIRE_ERRNO(send(pair.client, "x", 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE(SendAll(pair.server, "answer"));
  REQUIRE(ExitedWith(Reap(Fork([&] { return ReceiveExactly(pair.client, 6) == "answer" ? 0 : 1; })), 0));
}

TEST_CASE("fork: a fork that fails leaves the connection as it was") {
  const pid_t pid = Fork([&] {
    Pair pair = MakePair();
    if (setuid(65534) != 0) return 10;
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_NPROC, &none);
    if (fork() != -1) return 1;
    if (!SendAll(pair.client, "hello") || ReceiveExactly(pair.server, 5) != "hello") return 2;
    pair.client.reset();
    char c;
    return recv(pair.server, &c, 1, 0) == 0 ? 0 : 3;
  });
  const int status = Reap(pid);
  if (ExitedWith(status, 10)) return sdp::test::Skipped("only root can become somebody else");
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("fork: the child of a process whose connect is under way has a socket that does not block, too",
          "[mixed]") {
  FullListener full;
  Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK | SOCK_CLOEXEC);
  REQUIRE_ERRNO(full.Connect(client), EINPROGRESS);
  const pid_t pid = Fork([&] {
    if ((fcntl(client, F_GETFL) & O_NONBLOCK) == 0) return 1;
    return (fcntl(client, F_GETFD) & FD_CLOEXEC) != 0 ? 0 : 2;
  });
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

}  // namespace
}  // namespace posix_test
