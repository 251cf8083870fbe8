// Programs in hostile surroundings: another root directory, another user, few descriptors, no room for
// another thread.
#include <grp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"
#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

constexpr uid_t kNobody = 65534;

// What it takes root to do is left out, with a word, where somebody else runs the tests.
bool IsRoot(const char* what) {
  if (geteuid() == 0) return true;
  sdp::test::Skipped(std::string(what) + " takes root");
  return false;
}

bool BecomeUser(uid_t user) {
  return setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(user) == 0;
}

bool ChangeRoot(const std::string& directory) { return chroot(directory.c_str()) == 0 && chdir("/") == 0; }

// An empty directory, and gone again.
class Jail {
 public:
  Jail() { REQUIRE(mkdtemp(name_) != nullptr); }
  ~Jail() { rmdir(name_); }
  const char* name() const { return name_; }

 private:
  char name_[32] = "/tmp/posix-jail-XXXXXX";
};

// For the calling thread and the children that it makes meanwhile.
class OneProcessor {
 public:
  OneProcessor() {
    REQUIRE(sched_getaffinity(0, sizeof all_, &all_) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OneProcessor() { sched_setaffinity(0, sizeof all_, &all_); }

 private:
  cpu_set_t all_;
};

// What a server's child answers: all it got, and an end.
int Echo(int fd) {
  const std::string got = ReceiveToEnd(fd);
  return SendAll(fd, got) && shutdown(fd, SHUT_WR) == 0 ? 0 : 1;
}

// Empty if it cannot be had; also from other threads.
std::string Ask(Listener& server, const std::string& question) {
  Fd fd(socket(server.address.storage.ss_family, SOCK_STREAM, 0));
  if (connect(fd, server.address.get(), server.address.length) != 0) return "";
  if (!SendAll(fd, question) || shutdown(fd, SHUT_WR) != 0) return "";
  return ReceiveToEnd(fd);
}

TEST_CASE("surroundings: a server that listens, then changes its root and its user, and serves") {
  if (!IsRoot("chroot")) return;
  Jail jail;
  Listener listener = Listen();
  const pid_t server = Child([&] {
    if (!ChangeRoot(jail.name()) || !BecomeUser(kNobody)) return 2;
    for (int client = 0; client < 3; ++client) {
      Fd fd(accept(listener.fd, nullptr, nullptr));
      if (fd < 0 || Echo(fd) != 0) return 1;
    }
    return 0;
  });
  for (const size_t size : {size_t{10}, size_t{300'000}, size_t{2'000'000}})
    REQUIRE(Hash(Ask(listener, Pattern(size))) == Hash(Pattern(size)));
  REQUIRE(ExitedWith(Reap(server), 0));
}

TEST_CASE("surroundings: a server whose children for each connection change root and user") {
  if (!IsRoot("chroot")) return;
  Jail jail;
  // In a process of its own: a thread of this one may hold an allocator's lock, which a sanitizer's leaves
  // taken in a child.
  RemoteClient client = ServeClient([](int fd) { return Exchange(fd, Pattern(500'000), Pattern(500'000)); });
  const pid_t child =
      Child([&] { return ChangeRoot(jail.name()) && BecomeUser(kNobody) ? Echo(client.server) : 2; });
  client.server.reset();
  REQUIRE(ExitedWith(Reap(client.pid), 0));
  REQUIRE(ExitedWith(Reap(child), 0));
}

// vsftpd's passive data connections. The daemon is out of reach by its path; who has not registered with it
// before stays with TCP.
TEST_CASE("surroundings: a listener opened in another root and as another user") {
  if (!IsRoot("chroot")) return;
  const bool listened_before = GENERATE(true, false);
  Jail jail;
  Listener earlier;
  if (listened_before) earlier = Listen();
  int ports[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ports) == 0);
  const Fd in(ports[0]), out(ports[1]);
  const pid_t server = Child([&] {
    if (!ChangeRoot(jail.name()) || !BecomeUser(kNobody)) return 2;
    Listener listener = Listen();
    const uint16_t port = listener.address.port();
    if (write(out, &port, sizeof port) != sizeof port) return 3;
    Fd fd(accept(listener.fd, nullptr, nullptr));
    return fd < 0 ? 1 : Echo(fd);
  });
  uint16_t port = 0;
  REQUIRE(read(in, &port, sizeof port) == sizeof port);
  Listener listener{.fd = Fd(), .address = Loopback(AF_INET, port)};
  REQUIRE(Hash(Ask(listener, Pattern(300'000))) == Hash(Pattern(300'000)));
  REQUIRE(ExitedWith(Reap(server), 0));
}

TEST_CASE("surroundings: a client in another root and as another user") {
  if (!IsRoot("chroot")) return;
  Jail jail;
  Listener listener = Listen();
  const pid_t client = Child([&] {
    // One that has connected before, and one that has not.
    Fd before = TcpSocket();
    if (connect(before, listener.address.get(), listener.address.length) != 0) return 3;
    if (!ChangeRoot(jail.name()) || !BecomeUser(kNobody)) return 2;
    Fd after = TcpSocket();
    if (connect(after, listener.address.get(), listener.address.length) != 0) return 4;
    for (const Fd* fd : {&before, &after}) {
      if (!SendAll(*fd, Pattern(100'000)) || shutdown(*fd, SHUT_WR) != 0) return 5;
      if (Hash(ReceiveToEnd(*fd)) != Hash(Pattern(100'000))) return 6;
    }
    return 0;
  });
  Fd first(accept(listener.fd, nullptr, nullptr));
  Fd second(accept(listener.fd, nullptr, nullptr));
  REQUIRE(Echo(first) == 0);
  REQUIRE(Echo(second) == 0);
  REQUIRE(ExitedWith(Reap(client), 0));
}

TEST_CASE("surroundings: twenty descriptors are enough for who needs ten") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  const pid_t pid = Child([] {
    if (close_range(3, ~0U, 0) != 0) return 9;
    const rlimit limit{.rlim_cur = 20, .rlim_max = 20};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 8;
    for (int round = 0; round < 5; ++round) {
      Listener listener = Listen();
      std::vector<Pair> pairs;
      for (int i = 0; i < 3; ++i) pairs.push_back(ConnectTo(listener));
      for (Pair& pair : pairs) {
        if (!SendAll(pair.client, Pattern(60'000)) ||
            Hash(ReceiveExactly(pair.server, 60'000)) != Hash(Pattern(60'000)))
          return 1;
        if (!SendAll(pair.server, std::string("answer")) || !WaitFor(pair.client, POLLIN)) return 2;
        if (ReceiveExactly(pair.client, 6) != "answer") return 3;
      }
      // The numbers are the lowest, once the connections of the round before have ended.
      if (!Eventually([] { return Fd(dup(0)).get() == 10; })) return 4;
    }
    return 0;
  });
  const int status = Reap(pid);
  INFO("status " << status);
  REQUIRE(ExitedWith(status, 0));
}

// Event loops abort where epoll_ctl fails.
TEST_CASE("surroundings: the first stream sockets of an epoll set when no descriptor is left") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  const bool fresh = GENERATE(true, false);
  const pid_t pid = Child([=] {
    const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
    if (close_range(3, ~0U, 0) != 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) return 9;
    Fd ep(epoll_create1(0));
    const Fd other = TcpSocket();
    Pair pair;
    if (!fresh) pair = MakePair();
    int last = -1;
    for (int fd; (fd = dup(0)) >= 0;) last = fd;
    if (errno != EMFILE) return 8;
    if (fresh) {
      close(last);
      pair.server = TcpSocket();
    }
    epoll_event event{.events = EPOLLIN, .data = {.fd = pair.server}};
    if (epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) != 0) return 1;
    if (fresh) return epoll_wait(ep, &event, 1, kPatienceMs) == 1 && event.events == EPOLLHUP ? 0 : 2;
    if (!SendAll(pair.client, "x")) return 3;
    if (epoll_wait(ep, &event, 1, kPatienceMs) != 1 || event.data.fd != pair.server) return 4;
    return ReceiveExactly(pair.server, 1) == "x" ? 0 : 5;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("surroundings: a program with large thread-local variables") {
  REQUIRE(ExitedWith(Reap(Child([] {
                       Program program("", -1);
                       program.Use("posix_large_tls");
                       execve(program.path.c_str(), program.argv.data(), program.envp.data());
                       return 9;
                     })),
                     0));
}

// What a program has not read need not keep its peer, which ends.
TEST_CASE("surroundings: no descriptor is left when a server leaves its client alone") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  const std::string data = Pattern(100'000);
  Listener listener = Listen();
  Pipe go;
  const pid_t pid = Fork([&] {
    Fd fd = Connected(listener);
    if (!go.Hear()) return 1;
    for (size_t at = 0; at < data.size(); at += 100) {
      if (!SendAll(fd, data.substr(at, 100))) return 2;
    }
    return 0;
  });
  Fd server(accept(listener.fd, nullptr, nullptr));
  const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::vector<Fd> rest;
  for (int fd; (fd = dup(0)) >= 0;) rest.emplace_back(fd);
  REQUIRE(errno == EMFILE);
  go.Tell();
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(ExitedWith(status, 0));
  rest.clear();
  REQUIRE(Hash(ReceiveExactly(server, data.size())) == Hash(data));
}

// No thread and no process more for this process. Root is bound by no such limit, so it becomes somebody who
// has no process yet.
bool FillProcessTable() {
  const rlimit one{.rlim_cur = 1, .rlim_max = 1};
  if (setrlimit(RLIMIT_NPROC, &one) != 0) return false;
  if (geteuid() == 0 && !BecomeUser(static_cast<uid_t>(40'000 + getpid() % 20'000))) return false;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  return child < 0;
}

TEST_CASE("surroundings: a full process table, and a client that goes about it every way") {
  Listener listener = Listen();
  const std::string data = Pattern(3'000'000);
  const pid_t client = Child([&] {
    if (!FillProcessTable()) return 9;
    // Blocking.
    Fd blocking = TcpSocket();
    if (connect(blocking, listener.address.get(), listener.address.length) != 0) return 1;
    if (!SendAll(blocking, data) || shutdown(blocking, SHUT_WR) != 0) return 2;
    if (Hash(ReceiveToEnd(blocking)) != Hash(data)) return 3;
    // Non-blocking, by poll.
    Fd polled = TcpSocket();
    if (connect(polled, listener.address.get(), listener.address.length) != 0) return 4;
    SetNonblocking(polled);
    if (!SendAll(polled, data) || shutdown(polled, SHUT_WR) != 0) return 5;
    if (Hash(ReceiveToEnd(polled)) != Hash(data)) return 6;
    // Closed with much that the peer has not taken, and then the end of the process.
    Fd left = TcpSocket();
    if (connect(left, listener.address.get(), listener.address.length) != 0) return 7;
    if (!SendAll(left, data.substr(0, 1'500'000))) return 8;
    left.reset();
    return 0;
  });
  for (int round = 0; round < 2; ++round) {
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(Echo(server) == 0);
  }
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(Hash(ReceiveToEnd(server)) == Hash(data.substr(0, 1'500'000)));
  REQUIRE(ExitedWith(Reap(client), 0));
}

TEST_CASE("surroundings: a full process table, and a connect that does not block", "[mixed]") {
  const OneProcessor one_processor;
  Listener listener = Listen();
  const pid_t client = Child([&] {
    if (!FillProcessTable()) return 9;
    // The server, once woken, overtakes the client: it meets whatever the client has begun.
    const sched_param none{};
    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) return 8;
    for (const bool blocking : {true, false, false}) {
      Fd fd = TcpSocket(AF_INET, blocking ? 0 : SOCK_NONBLOCK);
      if (connect(fd, listener.address.get(), listener.address.length) != 0 &&
          (blocking || errno != EINPROGRESS))
        return 1;
      if (!WaitFor(fd, POLLOUT)) return 2;
      if (GetOption(fd, SOL_SOCKET, SO_ERROR) != 0) return 3;
      if (PeerOf(fd).ToString() != listener.address.ToString()) return 4;
      if (connect(fd, listener.address.get(), listener.address.length) != 0 && errno != EISCONN) return 5;
      if (!SendAll(fd, "question") || ReceiveExactly(fd, 8) != "question") return 6;
    }
    return 0;
  });
  for (int round = 0; round < 3; ++round) {
    if (!WaitFor(listener.fd, POLLIN)) break;
    Fd server(accept(listener.fd, nullptr, nullptr));
    SetTimeout(server, SO_RCVTIMEO, kPatienceMs);
    SendAll(server, ReceiveExactly(server, 8));
  }
  const int status = Reap(client);
  INFO("status " << status);
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("surroundings: a full process table, and a server that closes before its clients have read") {
  Listener listener = Listen();
  SetNonblocking(listener.fd);
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t server = Child([&] {
    if (!FillProcessTable()) return 9;
    for (int client = 0; client < 3; ++client) {
      if (!WaitFor(listener.fd, POLLIN)) return 1;
      Fd fd(accept(listener.fd, nullptr, nullptr));
      if (fd < 0) return 2;
      SetNonblocking(fd);
      const size_t size = Fill(fd);
      if (write(ready[1], &size, sizeof size) != sizeof size) return 3;
    }
    // It lives on, in poll: what it has closed goes on leaving.
    if (!WaitFor(listener.fd, POLLIN)) return 4;
    return Echo(Fd(accept(listener.fd, nullptr, nullptr)));
  });
  std::vector<Fd> clients;
  std::vector<size_t> sizes(3);
  for (size_t& size : sizes) {
    clients.push_back(TcpSocket());
    REQUIRE(connect(clients.back(), listener.address.get(), listener.address.length) == 0);
    REQUIRE(read(ready[0], &size, sizeof size) == sizeof size);
  }
  for (size_t i = 0; i < clients.size(); ++i) REQUIRE(ReceiveToEnd(clients[i]).size() == sizes[i]);
  REQUIRE(Ask(listener, "last") == "last");
  REQUIRE(ExitedWith(Reap(server), 0));
  close(ready[0]);
  close(ready[1]);
}

bool LimitFiles(rlim_t size) {
  const rlimit limit{.rlim_cur = size, .rlim_max = size};
  return setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

// A connection and both ways in which another process may come to one. 0, or what went wrong.
int TalksItselfAndByChildren() {
  Pair pair = MakePair();
  if (!SendAll(pair.client, "from here") || ReceiveExactly(pair.server, 9) != "from here") return 1;
  const pid_t child = Child([&] {
    return SendAll(pair.client, "from a child") && ReceiveExactly(pair.client, 6) == "answer" ? 0 : 1;
  });
  if (ReceiveExactly(pair.server, 12) != "from a child" || !SendAll(pair.server, "answer")) return 2;
  if (!ExitedWith(Reap(child), 0)) return 3;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 4;
  const Fd here(ends[0]), there(ends[1]);
  const pid_t taker = Child([&] {
    Fd fd(TakeFrom(there));
    return fd >= 0 && SendAll(fd, "from another") ? 0 : 1;
  });
  if (!Pass(here, pair.client)) return 5;
  if (ReceiveExactly(pair.server, 12) != "from another") return 6;
  return ExitedWith(Reap(taker), 0) ? 0 : 7;
}

TEST_CASE("surroundings: files of a moderate length are enough for what children have to know") {
  const rlim_t longest = GENERATE(rlim_t{64} << 20, rlim_t{4} << 30);
  CAPTURE(longest);
  const pid_t pid = Child([longest] { return LimitFiles(longest) ? TalksItselfAndByChildren() : 9; });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("surroundings: a process that may write nothing to files has connections, and so have its children",
          "[mixed]") {
  const pid_t pid = Child([] { return LimitFiles(0) ? TalksItselfAndByChildren() : 9; });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE(
    "surroundings: a process that may write nothing to files any more goes on with its connections, and "
    "makes many",
    "[mixed]") {
  const pid_t pid = Child([] {
    Listener listener = Listen();
    std::vector<Pair> pairs;
    pairs.push_back(ConnectTo(listener));
    if (!LimitFiles(0)) return 9;
    while (pairs.size() < 50) pairs.push_back(ConnectTo(listener));
    for (Pair& pair : pairs) {
      if (!SendAll(pair.client, "question") || ReceiveExactly(pair.server, 8) != "question") return 1;
      const linger reset{.l_onoff = 1, .l_linger = 0};  // worth a line in a log
      if (setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) != 0) return 2;
      pair.client.reset();
      char c;
      if (recv(pair.server, &c, 1, 0) != -1 || errno != ECONNRESET) return 3;
    }
    return 0;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
