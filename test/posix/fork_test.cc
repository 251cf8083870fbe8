// Connections that several processes hold after a fork: accept and fork, in turn, both at once, and every way
// to go.
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>

#include "test/posix/support.h"

namespace posix_test {
namespace {

// A child that dies with its parent.
pid_t Fork(const std::function<int()>& body) {
  return Child([&] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return body();
  });
}

// Two ends in two processes from the start: only `server`'s end is shared further.
struct Remote {
  pid_t pid = -1;
  Fd server;
};
// A client process that runs `body` on its end.
Remote ServeClient(const std::function<int(int)>& body) {
  Listener listener = Listen();
  Remote remote;
  remote.pid = Fork([&] {
    listener.fd.reset();
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 100;
    return body(client);
  });
  REQUIRE(WaitFor(listener.fd, POLLIN));
  remote.server = Fd(accept(listener.fd, nullptr, nullptr));
  REQUIRE(remote.server >= 0);
  return remote;
}

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
  struct Pipe {
    Pipe() {
      int fds[2];
      REQUIRE(pipe(fds) == 0);
      in.reset(fds[0]), out.reset(fds[1]);
    }
    Fd in, out;
  } started, resume, accepted;
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
    return Async([fd, &listener] { return connect(fd, listener.address.get(), listener.address.length) == 0; });
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
  REQUIRE(write(started.out, "x", 1) == 1);
  for (int i = 0; i < kLater - 1; ++i) REQUIRE(NextAccepted() == '2');  // one may already be the first's
  REQUIRE(write(resume.out, "x", 1) == 1);
  REQUIRE(NextAccepted() != '-');
  for (auto& client : clients) REQUIRE(Get(client));
  for (const pid_t pid : {first, second}) {
    kill(pid, SIGKILL);
    Reap(pid);
  }
}

TEST_CASE("fork: the peer sees no end before the last holder has closed") {
  Pair pair = MakePair();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    pair.client.reset();
    out.reset();
    char c;
    if (read(in, &c, 1) != 0) return 1;
    return SendAll(pair.server, "child") ? 0 : 2;
  });
  REQUIRE(SendAll(pair.server, "parent"));
  pair.server.reset();
  REQUIRE(ReceiveExactly(pair.client, 6) == "parent");
  REQUIRE(PollOne(pair.client, POLLIN, kQuietMs) == 0);
  out.reset();
  REQUIRE(ReceiveToEnd(pair.client) == "child");
  REQUIRE(ExitedWith(Reap(pid), 0));
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

TEST_CASE("fork: one process reads while another writes") {
  const std::string up = Pattern(6'000'000, 3), down = Pattern(5'000'000, 4);
  Remote remote = ServeClient([&](int fd) {
    auto sender = Async([&] { return SendAll(fd, up) && shutdown(fd, SHUT_WR) == 0; });
    const std::string got = ReceiveToEnd(fd);
    return sender.get() && Hash(got) == Hash(down) ? 0 : 1;
  });
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
  Remote remote = ServeClient([&](int fd) {
    auto sender = Async([&] { return SendAll(fd, up) && shutdown(fd, SHUT_WR) == 0; });
    const std::string got = ReceiveToEnd(fd);
    return sender.get() && Hash(got) == Hash(down) ? 0 : 1;
  });
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
  Remote remote = ServeClient([&](int fd) {
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

TEST_CASE("fork: a child waits in poll for what its parent leaves to it") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "for the parent"));
  const pid_t pid = Fork([&] {
    if (ReceiveExactly(pair.server, 7) != "for the") return 1;
    return 0;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(PollOne(pair.server, POLLIN) == POLLIN);
  REQUIRE(ReceiveExactly(pair.server, 7) == " parent");
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
}

TEST_CASE("fork: a child killed, or gone by _exit or exec, leaves the connection to the parent") {
  Pair pair = MakePair();
  const int how = GENERATE(0, 1, 2);
  int used[2];
  REQUIRE(pipe2(used, O_CLOEXEC) == 0);
  Fd used_out(used[0]), used_in(used[1]);
  const pid_t pid = Fork([&]() -> int {
    SetOption(pair.client, SOL_SOCKET, SO_KEEPALIVE, 1);
    if (write(used_in, "", 1) != 1) return 1;
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
    char done;
    REQUIRE(WaitFor(used_out, POLLIN));
    REQUIRE(read(used_out, &done, 1) == 1);
    REQUIRE(kill(pid, SIGKILL) == 0);
    Reap(pid);
  }
  REQUIRE(SendAll(pair.client, "still here"));
  REQUIRE(ReceiveExactly(pair.server, 10) == "still here");
  pair.client.reset();
  REQUIRE(ReceiveToEnd(pair.server).empty());
  if (how == 2) {
    kill(pid, SIGKILL);
    Reap(pid);
  }
}

TEST_CASE("fork: what the parent had not yet sent arrives, whoever closes last") {
  const bool child_last = GENERATE(false, true);
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const size_t filled = Fill(pair.client);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    pair.server.reset();
    out.reset();
    char c;
    return read(in, &c, 1) == 0 ? 0 : 1;
  });
  if (!child_last) {
    out.reset();
    REQUIRE(ExitedWith(Reap(pid), 0));
  }
  pair.client.reset();
  REQUIRE(ReceiveExactly(pair.server, filled).size() == filled);
  if (child_last) {
    REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
    out.reset();
    REQUIRE(ExitedWith(Reap(pid), 0));
  }
  REQUIRE(ReceiveToEnd(pair.server).empty());
}

TEST_CASE("fork: a child that has closed the connection with bytes unsent, and exits, leaves it to its parent") {
  Listener listener = Listen();
  for (int i = 0; i < 30; ++i) {
    CAPTURE(i);
    Pair pair = ConnectTo(listener);
    SetNonblocking(pair.client);
    int fds[2];
    REQUIRE(pipe(fds) == 0);
    Fd in(fds[0]), out(fds[1]);
    const pid_t pid = Fork([&] {
      pair.server.reset();
      const size_t filled = Fill(pair.client);
      pair.client.reset();
      return write(out, &filled, sizeof filled) == sizeof filled ? 0 : 1;
    });
    size_t filled = 0;
    REQUIRE(read(in, &filled, sizeof filled) == sizeof filled);
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
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    pair.server.reset();
    if (write(out, "x", 1) != 1) return 1;
    char c;
    return recv(pair.client, &c, 1, 0) == -1 && errno == ECONNRESET ? 0 : 2;
  });
  char c;
  REQUIRE(read(in, &c, 1) == 1);
  pair.server.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("fork: shutdown by one process ends the stream for both") {
  Pair pair = MakePair();
  REQUIRE(ExitedWith(Reap(Fork([&] { return shutdown(pair.client, SHUT_WR) == 0 ? 0 : 1; })), 0));
  REQUIRE(ReceiveToEnd(pair.server).empty());
  REQUIRE_ERRNO(send(pair.client, "x", 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE(SendAll(pair.server, "answer"));
  REQUIRE(ExitedWith(Reap(Fork([&] { return ReceiveExactly(pair.client, 6) == "answer" ? 0 : 1; })), 0));
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
  if (ExitedWith(status, 10)) {
    WARN("skipped: only root can become somebody else");
    return;
  }
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("fork: a reader asleep in one thread while another forks goes on reading") {
  Pair pair = MakePair();
  auto reader = Async([&] { return ReceiveExactly(pair.server, 8); });
  REQUIRE(StillRunning(reader));
  const pid_t pid = Fork([&] {
    pair.server.reset();
    return SendAll(pair.client, "one ") ? 0 : 1;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(SendAll(pair.client, "two "));
  REQUIRE(Get(reader) == "one two ");
}

TEST_CASE("fork: the parent closes under its own sleeping receive, and the child goes on") {
  Pair pair = MakePair();
  const int number = pair.server;
  std::atomic<pid_t> tid{0};
  auto blocked = Async([&tid, number] {
    tid = gettid();
    char c;
    return recv(number, &c, 1, 0);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    pair.client.reset();
    out.reset();
    char c;
    if (read(in, &c, 1) != 0) return 1;
    // What the blocked call does with the byte that wakes it is not defined.
    const std::string got = ReceiveToEnd(pair.server);
    if (got != "rest" && got != "xrest") return 2;
    return SendAll(pair.server, "answer") ? 0 : 3;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "x"));
  Get(blocked);
  out.reset();
  REQUIRE(SendAll(pair.client, "rest"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(pair.client) == "answer");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// To the end, in large pieces: what is unread goes from process to process with each. And patiently: a sanitizer takes its time for that.
std::string ReceiveMuch(int fd) {
  std::string data, piece(2 << 20, 0);
  while (PollOne(fd, POLLIN, 4 * kPatienceMs) != 0) {
    const ssize_t n = recv(fd, piece.data(), piece.size(), 0);
    if (n <= 0) return n == 0 ? data : std::string();
    data.append(piece, 0, static_cast<size_t>(n));
  }
  return {};
}

// As much is unread as one process could not leave to others, where the library lets a connection have that: family 27 has an option for it.
TEST_CASE("fork: a blocking send goes on while another process leaves much unread") {
  constexpr size_t kUnread = 24 << 20, kMuch = 32 << 20;
  constexpr int kLevelSdp = 1025, kBuffers = 82;
  const auto Socket = [] {
    const int native = socket(27, SOCK_STREAM, 0);
    return native >= 0 ? Fd(native) : TcpSocket();
  };
  Fd listening = Socket();
  const int buffers = 1000;
  setsockopt(listening, kLevelSdp, kBuffers, &buffers, sizeof buffers);
  Address address = Loopback(AF_INET);
  REQUIRE(bind(listening, address.get(), address.length) == 0);
  REQUIRE(listen(listening, 8) == 0);
  address = LocalOf(listening);
  struct Pipe {
    Pipe() {
      int fds[2];
      REQUIRE(pipe(fds) == 0);
      in.reset(fds[0]), out.reset(fds[1]);
    }
    Fd in, out;
  } begin, sent;
  const std::string up = Pattern(kUnread, 3), down = Pattern(kMuch, 4);
  const pid_t peer = Fork([&] {
    listening.reset();
    begin.out.reset();
    Fd client = Socket();
    if (connect(client, address.get(), address.length) != 0) return 1;
    auto sender = Async([&] { return SendAll(client, up) && shutdown(client, SHUT_WR) == 0; });
    char c;
    if (read(begin.in, &c, 1) != 1) return 2;
    const std::string got = ReceiveMuch(client);
    return sender.get() && Hash(got) == Hash(down) ? 0 : 3;
  });
  Fd server(accept(listening, nullptr, nullptr));
  REQUIRE(server >= 0);
  const pid_t reader = Fork([&] {
    // What is not asked for is seen on the way, and stays unread. Plain TCP does not take so much.
    int unread = 0, before = -1;
    for (int still = 0; still < 3;) {
      PollOne(server, POLLPRI, kQuietMs);
      if (ioctl(server, FIONREAD, &unread) != 0) return 1;
      still = unread == before ? still + 1 : 0;
      before = unread;
    }
    if (write(begin.out, "x", 1) != 1) return 2;
    if (PollOne(sent.in, POLLIN, 2500) != 0) {  // longer than the library waits for another process by itself
      char whole = 0;
      if (read(sent.in, &whole, 1) != 1 || whole != 'w') return 3;
    }
    return Hash(ReceiveMuch(server)) == Hash(up) ? 0 : 4;
  });
  const ssize_t n = send(server, down.data(), down.size(), 0);
  REQUIRE(write(sent.out, n == static_cast<ssize_t>(down.size()) ? "w" : "s", 1) == 1);
  REQUIRE(n == static_cast<ssize_t>(down.size()));
  REQUIRE(shutdown(server, SHUT_WR) == 0);
  REQUIRE(ExitedWith(Reap(reader), 0));
  REQUIRE(ExitedWith(Reap(peer), 0));
}

TEST_CASE("fork: an epoll set reports what another process took from the link and left") {
  const uint32_t edge = GENERATE(0u, static_cast<uint32_t>(EPOLLET));
  const bool by_poll = GENERATE(false, true);
  Pair pair = MakePair();
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | edge, .data = {.u64 = 7}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t pid = Fork([&] {
    if (ReceiveExactly(pair.server, 4) != "one ") return 1;
    if (write(out, "x", 1) != 1) return 2;
    pause();
    return 0;
  });
  REQUIRE(SendAll(pair.client, "one two"));
  char c;
  REQUIRE(read(in, &c, 1) == 1);
  if (by_poll) REQUIRE(PollOne(ep, POLLIN) == POLLIN);
  event = {};
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.data.u64 == 7);
  REQUIRE(ReceiveExactly(pair.server, 3) == "two");
  kill(pid, SIGKILL);
  Reap(pid);
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
  // Alone again.
  REQUIRE(SendAll(pair.client, "three"));
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(ReceiveExactly(pair.server, 5) == "three");
}

TEST_CASE("fork: a wait in epoll ends with what comes while another process polls") {
  Pair pair = MakePair();
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  for (int i = 0; i < 8; ++i) {
    // The child sees the bytes and leaves them all.
    const pid_t pid = Fork([&] {
      if (!WaitFor(pair.server, POLLIN)) return 1;
      pause();
      return 0;
    });
    auto waiter = Async([&] { return epoll_wait(ep, &event, 1, kPatienceMs); });
    REQUIRE(StillRunning(waiter, 20));
    REQUIRE(SendAll(pair.client, "look"));
    REQUIRE(Get(waiter) == 1);
    REQUIRE(ReceiveExactly(pair.server, 4) == "look");
    kill(pid, SIGKILL);
    Reap(pid);
  }
}

}  // namespace
}  // namespace posix_test
