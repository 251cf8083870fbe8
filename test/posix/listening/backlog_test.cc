// Clients of a listener that processes share: connect completes and they may send before anybody accepts,
// whichever process will, and whatever becomes of the others.
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "test/posix/kernel_timer.h"
#include "test/posix/listening/backlog_support.h"
#include "test/posix/processes.h"

namespace posix_test {
namespace {

// One that has served a client, and does nothing more.
pid_t ChildThatHasAccepted(Listener& listener) {
  Pipe ready;
  const pid_t pid = Fork([&] {
    if (!Serve(listener.fd, 1, 'c')) return 1;
    ready.Tell();
    pause();
    return 0;
  });
  std::vector<Fd> clients = ConnectClients(listener, 1);
  REQUIRE(Servers(clients) == "c");
  REQUIRE(ready.Hear());
  return pid;
}

TEST_CASE("backlog: the server's child has come and gone") {
  const int how = GENERATE(0, 1, 2);
  Listener listener = Listen();
  if (how == 2) Pair used = ConnectTo(listener);
  const pid_t pid = Fork([&] {
    if (how == 1) pause();
    return 0;
  });
  if (how == 1) {
    Kill(pid);
  } else {
    REQUIRE(ExitedWith(Reap(pid), 0));
  }
  std::vector<Fd> clients = ConnectClients(listener, 5);
  REQUIRE(Serve(listener.fd, 5, 'p'));
  REQUIRE(Servers(clients) == "ppppp");
}

TEST_CASE("backlog: a child or a grandchild keeps the listener and does nothing with it") {
  const bool grandchild = GENERATE(false, true);
  const bool used = GENERATE(false, true);
  Listener listener = Listen();
  if (used) Pair pair = ConnectTo(listener);
  Pipe end;
  const pid_t pid = Fork([&] {
    end.out.reset();
    if (grandchild && fork() != 0) return 0;
    char c;
    return read(end.in, &c, 1) == 0 ? 0 : 1;
  });
  if (grandchild) REQUIRE(ExitedWith(Reap(pid), 0));
  std::vector<Fd> clients = ConnectClients(listener, 5);
  REQUIRE(Serve(listener.fd, 5, 'p'));
  REQUIRE(Servers(clients) == "ppppp");
  end.out.reset();
  if (!grandchild) REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("backlog: clients that came before the fork are the child's, if the parent goes") {
  const int waiting = GENERATE(0, 4);
  Listener listener = Listen();
  std::vector<Fd> clients = ConnectClients(listener, 4);
  if (waiting != 0) REQUIRE(HasWaiting(listener.fd, 4));
  const pid_t pid = Fork([&] { return Serve(listener.fd, 4, 'c') ? 0 : 1; });
  listener.fd.reset();
  REQUIRE(Servers(clients) == "cccc");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("backlog: a hundred wait, for the parent and for the child") {
  constexpr int kClients = 100;
  Listener listener = Listen();
  Pipe go;
  const pid_t pid = Fork([&] {
    go.out.reset();
    char c;
    if (read(go.in, &c, 1) != 0) return 1;
    return Serve(listener.fd, kClients / 2, 'c') ? 0 : 2;
  });
  std::vector<Fd> clients = StartClients(listener, kClients);
  for (const Fd& client : clients) REQUIRE(Connected(client));
  REQUIRE(HasWaiting(listener.fd, kClients));
  for (const Fd& client : clients) REQUIRE(SendAll(client, "a"));
  go.out.reset();
  REQUIRE(Serve(listener.fd, kClients / 2, 'p'));
  REQUIRE(ExitedWith(Reap(pid), 0));
  int parents = 0;
  for (const Fd& client : clients) {
    const std::string answer = ReceiveToEnd(client);
    REQUIRE(answer.size() == 2);
    parents += answer[1] == 'p' ? 1 : 0;
  }
  REQUIRE(parents == kClients / 2);
}

TEST_CASE("backlog: what waits is the parent's, when the child that has accepted before is killed") {
  Listener listener = Listen();
  const pid_t pid = ChildThatHasAccepted(listener);
  std::vector<Fd> clients = ConnectClients(listener, 6);
  REQUIRE(HasWaiting(listener.fd, 6));
  Kill(pid);
  REQUIRE(Serve(listener.fd, 6, 'p'));
  REQUIRE(Servers(clients) == "pppppp");
}

TEST_CASE("backlog: workers that are all busy") {
  constexpr int kWorkers = 3, kClients = 12;
  Listener listener = Listen();
  Pipe ready, go;
  std::vector<pid_t> pids;
  for (int w = 0; w < kWorkers; ++w) {
    pids.push_back(Fork([&] {
      go.out.reset();
      if (!Serve(listener.fd, 1, 'w') || write(ready.out, "x", 1) != 1) return 1;
      char c;
      if (read(go.in, &c, 1) != 0) return 2;
      return Serve(listener.fd, kClients / kWorkers, static_cast<char>('1' + w)) ? 0 : 3;
    }));
  }
  std::vector<Fd> first = ConnectClients(listener, kWorkers);
  REQUIRE(Servers(first) == "www");
  for (int w = 0; w < kWorkers; ++w) {
    char c;
    REQUIRE(read(ready.in, &c, 1) == 1);
  }
  listener.fd.reset();  // the master has gone, too
  std::vector<Fd> clients = ConnectClients(listener, kClients);
  go.out.reset();
  for (const pid_t pid : pids) REQUIRE(ExitedWith(Reap(pid), 0));
  std::string names = Servers(clients);
  std::sort(names.begin(), names.end());
  REQUIRE(names == "111122223333");
}

TEST_CASE("backlog: one process looks and leaves it to the other") {
  const int how = GENERATE(0, 1, 2);  // it goes on waiting; exits; closes the listener
  Listener listener = Listen(AF_INET, 128, SOCK_NONBLOCK);
  Pipe ready, go;
  const pid_t pid = Fork([&] {
    go.out.reset();
    char c;
    if (write(ready.out, "x", 1) != 1 || !WaitFor(listener.fd, POLLIN) || write(ready.out, "x", 1) != 1)
      return 1;
    if (read(go.in, &c, 1) != 1) return 2;
    if (how == 1) exit(0);
    if (how == 2) listener.fd.reset();
    return read(go.in, &c, 1) == 0 ? 0 : 3;
  });
  char c;
  REQUIRE(read(ready.in, &c, 1) == 1);
  std::vector<Fd> clients = ConnectClients(listener, 3);
  REQUIRE(read(ready.in, &c, 1) == 1);
  REQUIRE(write(go.out, "x", 1) == 1);
  REQUIRE(Serve(listener.fd, 3, 'p'));
  REQUIRE(Servers(clients) == "ppp");
  go.out.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("backlog: epoll in one process hears of what another has taken on") {
  const uint32_t edge = GENERATE(0u, static_cast<uint32_t>(EPOLLET));
  Listener listener = Listen(AF_INET, 128, SOCK_NONBLOCK);
  Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN | edge, .data = {.u64 = 77}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, listener.fd, &event) == 0);
  const pid_t pid = Fork([&] {
    // Uses it, by looking, and never accepts.
    for (;;) PollOne(listener.fd, POLLIN, kQuietMs);
    return 0;
  });
  int served = 0;
  std::vector<Fd> clients = ConnectClients(listener, 4);
  while (served < 4) {
    REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
    REQUIRE(event.data.u64 == 77);
    for (int fd; (fd = accept(listener.fd, nullptr, nullptr)) >= 0; ++served) {
      Fd server(fd);
      SetNonblocking(server, false);
      REQUIRE(SendAll(server, ReceiveExactly(server, 1) + 'p'));
    }
    REQUIRE(errno == EAGAIN);
  }
  REQUIRE(Servers(clients) == "pppp");
  Kill(pid);
}

TEST_CASE("backlog: a thread asleep in accept gets what waits for all") {
  Listener listener = Listen();
  REQUIRE(ExitedWith(Reap(Fork([] { return 0; })), 0));
  auto accepting =
      Async([&] { return Serve(listener.fd, 1, '1') && accept(listener.fd, nullptr, nullptr) >= 0; });
  std::vector<Fd> clients = ConnectClients(listener, 1);
  REQUIRE(Servers(clients) == "1");
  REQUIRE(StillRunning(accepting));
  clients = ConnectClients(listener, 1);
  REQUIRE(Get(accepting));
}

TEST_CASE("backlog: without a descriptor left, the connection waits on") {
  Listener listener = Listen();
  REQUIRE(ExitedWith(Reap(Fork([] { return 0; })), 0));
  std::vector<Fd> clients = ConnectClients(listener, 2);
  REQUIRE(HasWaiting(listener.fd, 2));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  Fd next(dup(0));
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  next.reset();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  errno = 0;
  const int refused = accept(listener.fd, nullptr, nullptr);
  const int error = errno;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(refused == -1);
  REQUIRE(error == EMFILE);
  REQUIRE(Serve(listener.fd, 2, 'p'));
  REQUIRE(Servers(clients) == "pp");
}

TEST_CASE("backlog: flags and names of what another process has taken on") {
  Listener listener = Listen();
  const pid_t pid = ChildThatHasAccepted(listener);
  std::vector<Fd> clients = ConnectClients(listener, 2);
  REQUIRE(HasWaiting(listener.fd, 2));
  Address peer;
  Fd plain(accept(listener.fd, peer.get(), &peer.length));
  // Each of the two processes may have taken one on, at the same moment: either may be first.
  const auto client = std::find_if(clients.begin(), clients.end(),
                                   [&](const Fd& one) { return LocalOf(one).ToString() == peer.ToString(); });
  REQUIRE(client != clients.end());
  REQUIRE(PeerOf(plain).ToString() == peer.ToString());
  REQUIRE(LocalOf(plain).ToString() == listener.address.ToString());
  REQUIRE(fcntl(plain, F_GETFD) == 0);
  REQUIRE_FALSE(IsNonblocking(plain));
  Fd flagged(accept4(listener.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  REQUIRE(fcntl(flagged, F_GETFD) == FD_CLOEXEC);
  REQUIRE(IsNonblocking(flagged));
  // Much, both ways, and to the end.
  const std::string data = Pattern(3'000'000);
  auto sender = Async([&] { return SendAll(plain, data) && shutdown(plain, SHUT_WR) == 0; });
  REQUIRE(Hash(ReceiveToEnd(*client)) == Hash(data));
  REQUIRE(Get(sender));
  Kill(pid);
}

// One that knows all calls but two that this program does not make.
bool SetFilter() {
  sock_filter instructions[] = {BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr)),
                                BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, SYS_eventfd2, 1, 0),
                                BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, SYS_memfd_create, 0, 1),
                                BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS),
                                BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog filter{5, instructions};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// The clients are in another process than the server, which has told them that they are connected before it
// has done with them.
TEST_CASE("backlog: a worker that sets a seccomp filter gets those who waited before and those who come") {
  constexpr int kClients = 6;
  for (int round = 0; round < 5; ++round) {
    Pipe told, go;
    const pid_t pid = Fork([&] {
      Listener listener = Listen();
      const pid_t worker = Fork([&] {
        char c;
        if (!WaitFor(listener.fd, POLLIN) || read(go.in, &c, 1) != 1) return 1;
        if (!SetFilter()) return 2;
        return ServeTogether(listener.fd, kClients, 'c') && ServeTogether(listener.fd, kClients, 'c') ? 0 : 3;
      });
      const uint16_t port = listener.address.port();
      if (write(told.out, &port, sizeof port) != sizeof port) return 4;
      return WEXITSTATUS(Reap(worker));
    });
    uint16_t port = 0;
    REQUIRE(read(told.in, &port, sizeof port) == sizeof port);
    Listener listener{.fd = Fd(), .address = Loopback(AF_INET, port)};
    std::vector<Fd> clients = ConnectClients(listener, kClients);
    REQUIRE(write(go.out, "x", 1) == 1);
    REQUIRE(Servers(clients) == std::string(kClients, 'c'));
    clients = ConnectClients(listener, kClients);
    REQUIRE(Servers(clients) == std::string(kClients, 'c'));
    REQUIRE(ExitedWith(Reap(pid), 0));
  }
}

// The port of this process that listens beside `known`; 0: none. A listener has one over SDP.
int OtherListeningPort(int known) {
  std::set<uint64_t> own;
  for (int fd = 0; fd < 65536; ++fd) {
    struct stat status {};
    if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode)) own.insert(status.st_ino);
  }
  for (const KernelSocket& each : KernelSockets()) {
    if (each.state == kListen && each.port != known && own.contains(each.inode)) return each.port;
  }
  return 0;
}

TEST_CASE("backlog: who does not end his handshake keeps no other one out") {
  Listener listener = Listen(AF_INET, 0);
  SetNonblocking(listener.fd);
  Fd silent = TcpSocket();
  if (const int port = OtherListeningPort(listener.address.port()); port != 0) {
    sockaddr_in beside{};
    beside.sin_family = AF_INET;
    beside.sin_port = htons(static_cast<uint16_t>(port));
    beside.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(syscall(SYS_connect, silent.get(), &beside, sizeof beside) == 0);  // no peer of the library's
    REQUIRE(SendAll(silent, "M"));                                             // an MPA Request begins so
    REQUIRE_ERRNO(accept(listener.fd, nullptr, nullptr), EAGAIN);
  }
  Fd client = TcpSocket();
  auto connecting = Async([&] { return connect(client, listener.address.get(), listener.address.length); });
  Fd server;
  REQUIRE(Eventually([&] {
    (void)WaitFor(listener.fd, POLLIN, 10);
    server = Fd(accept(listener.fd, nullptr, nullptr));
    return server >= 0;
  }));
  REQUIRE(Get(connecting) == 0);
  REQUIRE(SendAll(client, "hello"));
  REQUIRE(ReceiveExactly(server, 5) == "hello");
}

}  // namespace
}  // namespace posix_test
