// A program of plain sockets, under the preload, whose peer asks for Socket Duplication (SDP 13) again and
// again. The program must not notice.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "test/posix/support.h"
#include "test/posix/suspension/pattern.h"

namespace sdp::suspension_test {
namespace {

using namespace posix_test;

// The peer: a process that nothing is preloaded into. Made before any socket, so that it inherits none.
class Peer {
 public:
  Peer() {
    int to[2];
    int from[2];
    REQUIRE(pipe2(to, O_CLOEXEC) == 0);
    REQUIRE(pipe2(from, O_CLOEXEC) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      unsetenv("LD_PRELOAD");
      std::string path(4096, '\0');
      path.resize(
          static_cast<size_t>(std::max<ssize_t>(readlink("/proc/self/exe", path.data(), path.size()), 0)));
      path = path.substr(0, path.rfind('/')) + "/asking_peer";
      execl(path.c_str(), path.c_str(), nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = Fd(to[1]);
    from_ = Fd(from[0]);
  }
  ~Peer() {
    to_.reset();
    from_.reset();
    Reap(pid_);
  }

  void Tell(const std::string& command) {
    const std::string line = command + "\n";
    REQUIRE(write(to_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  }
  // Its answer to the oldest command that has none.
  std::string Answer() {
    std::string line;
    for (char c = 0; Comes() && read(from_, &c, 1) == 1; line += c) {
      if (c == '\n') return line;
    }
    return line + " (and no more)";
  }
  std::string Do(const std::string& command) {
    Tell(command);
    return Answer();
  }
  // While the program waits for `events` of `fd`, which do not come: one that makes no call hears nothing.
  std::string AnswerWhileWaiting(int fd, short events) {
    Eventually([&] { return PollOne(from_, POLLIN, 0) != 0 || (PollOne(fd, events, 5) & events) != 0; });
    return Answer();
  }

 private:
  // More of its answers. A signal that it has caused may come before its answer does, and ends no wait for
  // that.
  bool Comes() {
    pollfd answer{from_, POLLIN, 0};
    int ready;
    do {
      ready = poll(&answer, 1, 3 * kPatienceMs);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
  }

  pid_t pid_ = -1;
  Fd to_, from_;
};

// Of the cases with the tag [rnic], which are run over a kernel RNIC, too: in a guest, where a processor is
// emulated (test/guest).
bool OverKernelRnic() { return getenv("SDP_TEST_ADDRESS") != nullptr; }
size_t Amount(size_t bytes) { return OverKernelRnic() ? bytes / 5 : bytes; }
std::vector<std::string> Ports() {
  return OverKernelRnic() ? std::vector<std::string>{"new"} : std::vector<std::string>{"new", "same"};
}

enum class Opens { kProgram, kPeer };

// A connection of the program with the peer, opened by either.
struct Connection {
  explicit Connection(Opens opens) {
    if (opens == Opens::kProgram) {
      const std::string answer = peer.Do("listen");
      REQUIRE(answer.rfind("ok ", 0) == 0);
      Address target = Loopback(AF_INET, static_cast<uint16_t>(std::stoi(answer.substr(3))));
      peer.Tell("accept");
      fd = TcpSocket();
      REQUIRE(connect(fd, target.get(), target.length) == 0);
    } else {
      listener = Listen();
      peer.Tell("connect " + std::to_string(listener.address.port()));
      fd = Fd(accept(listener.fd, nullptr, nullptr));
    }
    REQUIRE(fd >= 0);
    REQUIRE(peer.Answer() == "ok");
    local = LocalOf(fd).ToString();
    remote = PeerOf(fd).ToString();
  }

  bool Send(size_t size) {
    const bool good = SendAll(fd, Stretch(From::kProgram, sent, size));
    sent += size;
    return good;
  }
  // True if the next `size` bytes are the right ones.
  bool Receive(size_t size) {
    const bool good = ReceiveExactly(fd, size) == Stretch(From::kPeer, received, size);
    received += size;
    return good;
  }
  // All is as if nothing had been.
  void CheckNames() {
    CHECK(LocalOf(fd).ToString() == local);
    CHECK(PeerOf(fd).ToString() == remote);
    CHECK(GetOption(fd, SOL_SOCKET, SO_ERROR) == 0);
  }

  Peer peer;  // before any socket
  Listener listener;
  Fd fd;
  uint64_t sent = 0;
  uint64_t received = 0;
  std::string local, remote;
};

TEST_CASE("suspension: a quiet connection moves, and moves again", "[rnic]") {
  const Opens opens = GENERATE(Opens::kProgram, Opens::kPeer);
  const std::string port = GENERATE(std::string("new"), std::string("same"));
  Connection c(opens);
  SetOption(c.fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  REQUIRE(c.Send(1000));
  REQUIRE(c.peer.Do("receive 1000") == "ok");
  for (int i = 0; i < 3; ++i) {
    c.peer.Tell("suspend " + port);
    c.peer.Tell("send 3000");
    REQUIRE(c.Receive(3000));
    REQUIRE(c.peer.Answer() == "ok");
    REQUIRE(c.peer.Answer() == "ok");
    REQUIRE(c.Send(3000));
    REQUIRE(c.peer.Do("receive 3000") == "ok");
    c.CheckNames();
    CHECK(GetOption(c.fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK_FALSE(IsNonblocking(c.fd));
  }
  REQUIRE(shutdown(c.fd, SHUT_WR) == 0);
  REQUIRE(c.peer.Do("receive-end") == "ok");
  REQUIRE(c.peer.Do("close") == "ok");
  REQUIRE(ReceiveToEnd(c.fd).empty());
  REQUIRE(c.peer.Do("finish") == "ok");
}

TEST_CASE("suspension: in the middle of traffic both ways", "[rnic]") {
  const Opens opens = GENERATE(Opens::kProgram, Opens::kPeer);
  const std::string port = GENERATE(from_range(Ports()));
  // What the program writes and reads at a time: by copying, and by Zcopy.
  const size_t piece = GENERATE(size_t{5'000}, size_t{300'000});
  const size_t total = Amount(3'000'000);
  Connection c(opens);
  c.peer.Tell("exchange " + std::to_string(total) + " " + std::to_string(total) + " 4 " + port);
  auto writer = Async([&] {
    for (size_t at = 0; at < total; at += piece) {
      if (!c.Send(piece)) return false;
    }
    return true;
  });
  bool good = true;
  for (size_t at = 0; good && at < total; at += piece) good = c.Receive(piece);
  REQUIRE(good);
  REQUIRE(Get(writer));
  REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLIN) == "ok");
  c.CheckNames();
}

TEST_CASE("suspension: a thread sleeps in a receive, one in a poll, and one in an epoll wait", "[rnic]") {
  const std::string sleep = GENERATE(std::string("recv"), std::string("recv with a time-out"),
                                     std::string("poll"), std::string("epoll"));
  const std::string port = GENERATE(from_range(Ports()));
  Connection c(Opens::kPeer);
  if (sleep == "recv with a time-out") SetTimeout(c.fd, SO_RCVTIMEO, 2 * kPatienceMs);
  Fd epoll(epoll_create1(0));
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = 5}};
  if (sleep == "epoll") REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, c.fd, &event) == 0);
  std::atomic<pid_t> tid{0};
  auto sleeper = Async([&] {
    tid = gettid();
    epoll_event got{};
    if (sleep == "poll" && PollOne(c.fd, POLLIN | POLLRDHUP, 2 * kPatienceMs) != POLLIN)
      return std::string("a false alarm");
    if (sleep == "epoll" && (epoll_wait(epoll, &got, 1, 2 * kPatienceMs) != 1 || got.events != EPOLLIN))
      return std::string("a false alarm");
    return ReceiveExactly(c.fd, 4);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(c.peer.Do("suspend " + port) == "ok");
  REQUIRE(c.peer.Do("suspend " + port) == "ok");
  REQUIRE(StillRunning(sleeper));
  REQUIRE(c.peer.Do("send 4") == "ok");
  REQUIRE(Get(sleeper) == Stretch(From::kPeer, 0, 4));
}

TEST_CASE("suspension: an epoll server, level- and edge-triggered", "[rnic]") {
  const uint32_t edge = GENERATE(0u, uint32_t{EPOLLET});
  const size_t total = Amount(2'000'000);
  Connection c(Opens::kPeer);
  SetNonblocking(c.fd);
  Fd epoll(epoll_create1(0));
  epoll_event event{.events = EPOLLIN | EPOLLOUT | edge, .data = {.u64 = 7}};
  REQUIRE(epoll_ctl(epoll, EPOLL_CTL_ADD, c.fd, &event) == 0);
  c.peer.Tell("exchange " + std::to_string(total) + " " + std::to_string(total) + " 5 new");
  std::string room(40'000, '\0');
  bool good = true;
  const Stopwatch watch;
  while (good && (c.sent < total || c.received < total) && watch.ms() < 3 * kPatienceMs) {
    epoll_event got{};
    if (epoll_wait(epoll, &got, 1, 1000) != 1) continue;
    good = (got.events & (EPOLLERR | EPOLLHUP)) == 0;
    for (ssize_t n = 1; good && n > 0 && c.received < total;) {
      n = recv(c.fd, room.data(), room.size(), 0);
      if (n > 0) {
        good = room.compare(0, static_cast<size_t>(n),
                            Stretch(From::kPeer, c.received, static_cast<size_t>(n))) == 0;
        c.received += static_cast<uint64_t>(n);
      } else {
        good = n < 0 && errno == EAGAIN;
      }
    }
    for (ssize_t n = 1; good && n > 0 && c.sent < total;) {
      const std::string piece =
          Stretch(From::kProgram, c.sent, std::min<size_t>(room.size(), total - c.sent));
      n = send(c.fd, piece.data(), piece.size(), MSG_NOSIGNAL);
      if (n > 0) c.sent += static_cast<uint64_t>(n);
      good = n > 0 || errno == EAGAIN;
    }
    if (c.sent == total && edge == 0) {
      epoll_event less{.events = EPOLLIN, .data = {.u64 = 7}};
      epoll_ctl(epoll, EPOLL_CTL_MOD, c.fd, &less);
    }
  }
  REQUIRE(good);
  REQUIRE(c.sent == total);
  REQUIRE(c.received == total);
  REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLIN) == "ok");
}

TEST_CASE("suspension: half closed connections and urgent data move, too", "[rnic]") {
  const bool program_first = GENERATE(true, false);
  Connection c(Opens::kProgram);
  REQUIRE(c.Send(10));
  if (program_first) {
    REQUIRE(shutdown(c.fd, SHUT_WR) == 0);
    REQUIRE(c.peer.Do("receive 10") == "ok");
    REQUIRE(c.peer.Do("receive-end") == "ok");
    REQUIRE(c.peer.Do("urgent !") == "ok");
    REQUIRE(WaitFor(c.fd, POLLPRI));
    c.peer.Tell("suspend new");
    REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLIN) == "ok");
    char byte = 0;
    REQUIRE(recv(c.fd, &byte, 1, MSG_OOB) == 1);
    CHECK(byte == '!');
    REQUIRE(c.peer.Do("send 5000") == "ok");
    REQUIRE(c.Receive(5000));
    REQUIRE(c.peer.Do("close") == "ok");
    REQUIRE(ReceiveToEnd(c.fd).empty());
  } else {
    REQUIRE(c.peer.Do("receive 10") == "ok");
    REQUIRE(c.peer.Do("close") == "ok");
    REQUIRE(WaitFor(c.fd, POLLRDHUP));
    c.peer.Tell("suspend new");
    REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLPRI) == "ok");
    char byte = 0;
    REQUIRE(recv(c.fd, &byte, 1, 0) == 0);
    REQUIRE(c.Send(5000));
    REQUIRE(c.peer.Do("receive 5000") == "ok");
    REQUIRE(shutdown(c.fd, SHUT_WR) == 0);
    REQUIRE(c.peer.Do("receive-end") == "ok");
  }
  REQUIRE(c.peer.Do("finish") == "ok");
}

volatile sig_atomic_t urgent_signals = 0;

TEST_CASE("suspension: SIGURG tells of urgent data behind a move as before it", "[rnic]") {
  struct sigaction action {};
  action.sa_handler = [](int) { urgent_signals = urgent_signals + 1; };
  action.sa_flags = SA_RESTART;
  REQUIRE(sigaction(SIGURG, &action, nullptr) == 0);
  urgent_signals = 0;
  Connection c(Opens::kProgram);
  REQUIRE(fcntl(c.fd, F_SETOWN, getpid()) == 0);
  int told = 0;
  for (const char expected : {'1', '2', '3'}) {
    REQUIRE(c.peer.Do(std::string("urgent ") + expected) == "ok");
    REQUIRE(Eventually([&] { return urgent_signals == told + 1; }));
    char byte = 0;
    REQUIRE(recv(c.fd, &byte, 1, MSG_OOB) == 1);
    REQUIRE(byte == expected);
    ++told;
    c.peer.Tell("suspend new");
    REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLIN) == "ok");
    REQUIRE(urgent_signals == told);
  }
  c.CheckNames();
  REQUIRE(shutdown(c.fd, SHUT_WR) == 0);
  REQUIRE(c.peer.Do("receive-end") == "ok");
  REQUIRE(c.peer.Do("close") == "ok");
  REQUIRE(ReceiveToEnd(c.fd).empty());
  REQUIRE(c.peer.Do("finish") == "ok");
}

TEST_CASE("suspension: what was received stays, and what is sent and closed meanwhile arrives", "[rnic]") {
  Connection c(Opens::kPeer);
  REQUIRE(c.peer.Do("send 50000") == "ok");
  c.peer.Tell("suspend new");
  REQUIRE(c.Receive(100));
  REQUIRE(c.Send(200'000));
  REQUIRE(c.Receive(49'900));
  c.fd.reset();
  REQUIRE(c.peer.Answer() == "ok");
  REQUIRE(c.peer.Do("receive 200000") == "ok");
  REQUIRE(c.peer.Do("receive-end") == "ok");
}

TEST_CASE("suspension: a connection that nobody has accepted yet", "[rnic]") {
  Peer peer;
  Listener listener = Listen();
  REQUIRE(peer.Do("connect " + std::to_string(listener.address.port())) == "ok");
  REQUIRE(peer.Do("send 1000") == "ok");
  peer.Tell("suspend new");
  Address from;
  Fd fd(accept(listener.fd, from.get(), &from.length));
  REQUIRE(fd >= 0);
  REQUIRE(ReceiveExactly(fd, 1000) == Stretch(From::kPeer, 0, 1000));
  CHECK(PeerOf(fd).ToString() == from.ToString());
  REQUIRE(peer.AnswerWhileWaiting(fd, POLLIN) == "ok");
  REQUIRE(SendAll(fd, Stretch(From::kProgram, 0, 500)));
  REQUIRE(peer.Do("receive 500") == "ok");
}

// Of a link that was aborted nothing may be left on the descriptor: a linger time of zero would make a reset
// of every close.
TEST_CASE("suspension: a peer whose HelloAck is none is a peer over TCP, and closes in good order",
          "[plain]") {
  Peer peer;
  const std::string answer = peer.Do("listen");
  REQUIRE(answer.rfind("ok ", 0) == 0);
  Address target = Loopback(AF_INET, static_cast<uint16_t>(std::stoi(answer.substr(3))));
  peer.Tell("accept-badly");
  Fd fd = TcpSocket();
  REQUIRE(connect(fd, target.get(), target.length) == 0);
  REQUIRE(peer.Answer() == "ok");
  CHECK(PeerOf(fd).ToString() == target.ToString());
  fd.reset();
  REQUIRE(peer.Do("plain-end") == "ok");
}

TEST_CASE("suspension: a next connection that does not come about is a reset", "[rnic]") {
  const std::string port = GENERATE(std::string("closed"), std::string("rejects"), std::string("silent"));
  Connection c(port == "rejects" ? Opens::kProgram : Opens::kPeer);
  REQUIRE(c.peer.Do("send 100") == "ok");
  REQUIRE(WaitFor(c.fd, POLLIN));
  std::atomic<pid_t> tid{0};
  auto sleeper = Async([&] {
    tid = gettid();
    char rest[200];
    const ssize_t n = recv(c.fd, rest, sizeof rest, MSG_WAITALL);
    const ssize_t second = recv(c.fd, rest, sizeof rest, 0);
    return std::pair(n, second < 0 ? errno : 0);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(c.peer.Do("suspend " + port) == "lost");
  const auto [before, error] = Get(sleeper);
  CHECK(before == 100);
  CHECK(error == (port == "silent" ? ETIMEDOUT : ECONNRESET));
  CHECK((PollOne(c.fd, POLLIN | POLLOUT) & POLLHUP) != 0);
  REQUIRE_ERRNO(send(c.fd, "x", 1, MSG_NOSIGNAL), EPIPE);
}

// Ends the process at every call of those that a move makes.
bool ForbidMoves() {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int number : {SYS_connect, SYS_bind, SYS_setsockopt, SYS_ioctl}) {
    filter.push_back(BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, static_cast<uint32_t>(number), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  filter.push_back(BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_CASE(
    "suspension: a program that sets a seccomp filter in the middle of a move loses the connection, not its "
    "life") {
  Connection c(Opens::kPeer);
  c.peer.Tell("suspend held");
  REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLIN) == "lost");
  REQUIRE(ForbidMoves());
  char byte = 0;
  REQUIRE_ERRNO(recv(c.fd, &byte, 1, 0), ECONNRESET);
  REQUIRE(recv(c.fd, &byte, 1, 0) == 0);
}

TEST_CASE("suspension: a peer that asks again and again, and sends nothing, is followed ever more slowly") {
  Connection c(Opens::kPeer);
  const Stopwatch watch;
  for (int i = 0; i < 14; ++i) {
    c.peer.Tell("suspend new");
    REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLIN) == "ok");
  }
  CHECK(watch.ms() >= 10 + 20 + 40 + 80 + 160);
  c.peer.Tell("send 5");
  REQUIRE(c.Receive(5));
  REQUIRE(c.peer.Answer() == "ok");
}

TEST_CASE("suspension: parent and child of a fork hold the connection") {
  const std::string port = GENERATE(std::string("new"), std::string("same"));
  Connection c(Opens::kProgram);
  REQUIRE(c.Send(100));
  REQUIRE(c.peer.Do("receive 100") == "ok");
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = Child([&] {
    char go = 0;
    if (read(pipes[0], &go, 1) != 1) return 1;
    c.received = 500;  // by then
    if (!c.Send(1000) || !c.Receive(1000)) return 2;
    return 0;
  });
  // Asked for while neither is in a call, and the first to look is the parent; then the child's turn.
  c.peer.Tell("suspend " + port);
  c.peer.Tell("send 500");
  REQUIRE(c.Receive(500));
  REQUIRE(c.peer.Answer() == "ok");
  REQUIRE(c.peer.Answer() == "ok");
  c.peer.Tell("exchange 1000 1000 1 " + port);
  REQUIRE(write(pipes[1], "g", 1) == 1);
  close(pipes[0]);
  close(pipes[1]);
  REQUIRE(ExitedWith(Reap(child), 0));
  REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLIN) == "ok");
  c.sent += 1000;
  c.received += 1000;
  REQUIRE(c.Send(10));
  REQUIRE(c.peer.Do("receive 10") == "ok");
}

TEST_CASE(
    "suspension: a process that exits does not wait for the move of a connection that another one makes") {
  Connection c(Opens::kProgram);
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = Child([&] {
    char go = 0;
    return read(pipes[0], &go, 1) == 1 ? 0 : 1;
  });
  c.peer.Tell("suspend held");
  REQUIRE(c.peer.AnswerWhileWaiting(c.fd, POLLIN) == "lost");
  const Stopwatch watch;
  REQUIRE(write(pipes[1], "g", 1) == 1);
  REQUIRE(ExitedWith(Reap(child), 0));
  CHECK(watch.ms() < 3500);  // less than the peer may take
  close(pipes[0]);
  close(pipes[1]);
}

}  // namespace
}  // namespace sdp::suspension_test
