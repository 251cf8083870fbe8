// What docs/differences.md lists. Each case knows both answers, TCP's and the other: a
// difference that goes has its row go, too.
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <wchar.h>

#include <atomic>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"
#include "test/posix/twins.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

// The library serves AF_INET_SDP; the kernel does not.
bool UnderThePreload() {
  const Fd native(socket(27, SOCK_STREAM, 0));
  return native >= 0;
}

// Of a client: the kernel's connection leads to another port than the program's.
bool IsSdp(int client) {
  Address kernels;
  REQUIRE(syscall(SYS_getpeername, client, kernels.get(), &kernels.length) == 0);
  return kernels.port() != PeerOf(client).port();
}

TEST_CASE("difference: SO_PEEK_OFF") {
  Pair pair = MakePair();
  const int start = 0;
  errno = 0;
  const int result = setsockopt(pair.server, SOL_SOCKET, SO_PEEK_OFF, &start, sizeof start);
  if (result != 0 || UnderThePreload()) REQUIRE(errno == EOPNOTSUPP);
}

TEST_CASE("difference: SO_TIMESTAMPING tells no time") {
  Pair pair = MakePair();
  const int wanted = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
  SetOption(pair.server, SOL_SOCKET, SO_TIMESTAMPING, wanted);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_TIMESTAMPING) == wanted);
  const auto told = [&] {
    char bytes[4];
    alignas(cmsghdr) char control[256];
    iovec piece{bytes, sizeof bytes};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    REQUIRE(SendAll(pair.client, "when"));
    REQUIRE(WaitFor(pair.server, POLLIN));
    REQUIRE(recvmsg(pair.server, &message, 0) == 4);
    return CMSG_FIRSTHDR(&message) != nullptr;
  };
  if (UnderThePreload()) {
    for (int i = 0; i < 20; ++i) REQUIRE_FALSE(told());
  } else {
    REQUIRE(Eventually(told));  // the kernel begins to stamp a moment later
  }
}

TEST_CASE("difference: TCP_DEFER_ACCEPT holds back no SDP connection") {
  Listener listener = Listen();
  SetOption(listener.fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 30);
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  if (UnderThePreload()) {
    REQUIRE(WaitFor(listener.fd, POLLIN));
  } else {
    REQUIRE(PollOne(listener.fd, POLLIN, kQuietMs) == 0);
  }
  REQUIRE(SendAll(client, "now"));
  REQUIRE(WaitFor(listener.fd, POLLIN));
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(ReceiveExactly(server, 3) == "now");
}

TEST_CASE("difference: TCP_ULP and TCP_REPAIR of a connection are refused", "[native]") {
  if (!UnderThePreload()) return sdp::test::Skipped("here they may do what they are for");
  Pair pair = MakePair();
  REQUIRE_ERRNO(setsockopt(pair.client, IPPROTO_TCP, TCP_ULP, "tls", 3), ENOENT);
  const int on = 1;
  REQUIRE_ERRNO(setsockopt(pair.client, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on), EPERM);
  REQUIRE(SendAll(pair.client, "on"));
  REQUIRE(ReceiveExactly(pair.server, 2) == "on");
}

TEST_CASE("difference: IPV6_V6ONLY of a client that fell back", "[refused]") {
  BareFd listener = BareListener(AF_INET6, BareSocket(AF_INET6));
  Address address;
  REQUIRE(syscall(SYS_getsockname, listener.get(), address.get(), &address.length) == 0);
  Fd client = TcpSocket(AF_INET6);
  REQUIRE(GetOption(client, IPPROTO_IPV6, IPV6_V6ONLY) == 0);
  REQUIRE(connect(client, address.get(), address.length) == 0);
  REQUIRE(GetOption(client, IPPROTO_IPV6, IPV6_V6ONLY) == (UnderThePreload() ? 1 : 0));
}

TEST_CASE("difference: a stream of a socket has no wide characters") {
  Pair pair = MakePair();
  FILE* const stream = fdopen(pair.client.release(), "w");
  REQUIRE(stream != nullptr);
  const bool wide = fputws(L"wide", stream) >= 0;
  const int closed = fclose(stream);
  REQUIRE(wide == !UnderThePreload());
  REQUIRE(closed == 0);
  REQUIRE(ReceiveToEnd(pair.server) == (wide ? "wide" : ""));
}

TEST_CASE("difference: a receive to memory that was there for the receive before") {
  const pid_t pid = Child([] {
    signal(SIGSEGV, SIG_DFL);
    Pair pair = MakePair();
    void* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!SendAll(pair.client, "then") || recv(pair.server, memory, 4, MSG_WAITALL) != 4) return 1;
    if (mprotect(memory, 4096, PROT_NONE) != 0 || !SendAll(pair.client, "now") ||
        !WaitFor(pair.server, POLLIN))
      return 1;
    return recv(pair.server, memory, 4, 0) == -1 && errno == EFAULT ? 0 : 2;
  });
  const int status = Reap(pid);
  CAPTURE(status);
  if (UnderThePreload()) {
    REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
  } else {
    REQUIRE(ExitedWith(status, 0));
  }
}

TEST_CASE("difference: the peer of a process that is killed reads a reset, not an end", "[abort]") {
  RemoteClient remote = ServeClient([](int fd) {
    if (!SendAll(fd, "last")) return 1;
    raise(SIGKILL);
    return 2;
  });
  REQUIRE(ReceiveExactly(remote.server, 4) == "last");
  Reap(remote.pid);
  REQUIRE(WaitFor(remote.server, POLLIN));
  char c;
  if (UnderThePreload()) {
    REQUIRE_ERRNO(recv(remote.server, &c, 1, 0), ECONNRESET);
  } else {
    REQUIRE(recv(remote.server, &c, 1, 0) == 0);
  }
}

TEST_CASE("difference: an urgent byte that another overtakes is lost") {
  Pair pair = MakePair();
  REQUIRE(send(pair.client, "xa", 2, MSG_OOB) == 2);
  REQUIRE(WaitFor(pair.server, POLLPRI));
  REQUIRE(send(pair.client, "b", 1, MSG_OOB) == 1);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  REQUIRE(ReceiveToEnd(pair.server) == (UnderThePreload() ? "x" : "xa"));
}

TEST_CASE("difference: SO_OOBINLINE of an urgent byte that was taken, or is in line") {
  const bool taken = GENERATE(true, false);
  Pair pair = MakePair();
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, taken ? 0 : 1);
  REQUIRE(send(pair.client, "ab!", 3, MSG_OOB) == 3);
  REQUIRE(SendAll(pair.client, "c"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  char c = 0;
  if (taken) REQUIRE(recv(pair.server, &c, 1, MSG_OOB) == 1);
  SetOption(pair.server, SOL_SOCKET, SO_OOBINLINE, taken ? 1 : 0);
  // In line where it is in line to TCP, and where it was to SDP.
  REQUIRE(ReceiveToEnd(pair.server) == (taken != UnderThePreload() ? "ab!c" : "abc"));
}

TEST_CASE("difference: a handler of a fault's signal, without SA_RESTART, does not end a receive") {
  if (kUnderTsan) return Impossible(why::kHandlerRestarts);
  Pair pair = MakePair();
  static std::atomic<int> handled;
  handled = 0;
  struct sigaction counts {};
  counts.sa_handler = [](int) { ++handled; };
  REQUIRE(sigaction(SIGBUS, &counts, nullptr) == 0);
  std::atomic<pid_t> tid{0};
  std::atomic<pthread_t> self{};
  auto blocked = Async([&] {
    self = pthread_self();
    tid = gettid();
    char c;
    const ssize_t got = recv(pair.server, &c, 1, 0);
    return got < 0 ? -errno : static_cast<int>(got);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  REQUIRE(pthread_kill(self, SIGBUS) == 0);
  REQUIRE(Eventually([&] { return handled == 1; }));
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(blocked) == (UnderThePreload() ? 1 : -EINTR));
  REQUIRE(signal(SIGBUS, SIG_DFL) != SIG_ERR);
}

TEST_CASE("difference: a shutdown before there is a connection is forgotten", "[mixed]") {
  Listener listener = Listen();
  Fd client = TcpSocket();
  REQUIRE_ERRNO(shutdown(client, SHUT_WR), ENOTCONN);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  if (UnderThePreload()) {
    REQUIRE(SendAll(client, "said"));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(ReceiveExactly(server, 4) == "said");
  } else {
    REQUIRE_ERRNO(send(client, "x", 1, MSG_NOSIGNAL), EPIPE);
  }
}

// Whether this process's child may have such a namespace.
bool NamespacesMayBeMade(int what) {
  const pid_t pid = fork();
  if (pid == 0) _exit(syscall(SYS_unshare, what) == 0 ? 0 : 1);
  return ExitedWith(Reap(pid), 0);
}

TEST_CASE("difference: a non-blocking connect after unshare(CLONE_NEWPID) is TCP", "[mixed]") {
  if (!NamespacesMayBeMade(CLONE_NEWPID)) return sdp::test::Skipped("no PID namespaces here");
  const bool preload = UnderThePreload();
  Pipe where;
  const pid_t pid = Fork([&] {
    Address address;
    if (unshare(CLONE_NEWPID) != 0 || !WaitFor(where.in, POLLIN)) return 1;
    if (read(where.in, &address, sizeof address) != sizeof address) return 2;
    Fd client = TcpSocket(AF_INET, SOCK_NONBLOCK);
    if (connect(client, address.get(), address.length) != 0 && errno != EINPROGRESS) return 3;
    if (!WaitFor(client, POLLOUT) || GetOption(client, SOL_SOCKET, SO_ERROR) != 0 || IsSdp(client)) return 4;
    // One that waits makes its way by itself.
    Fd waits = TcpSocket();
    if (connect(waits, address.get(), address.length) != 0 || IsSdp(waits) != preload) return 5;
    return SendAll(client, "word") && SendAll(waits, "word") ? 0 : 6;
  });
  Listener listener = Listen();
  REQUIRE(write(where.out, &listener.address, sizeof listener.address) == sizeof listener.address);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(WaitFor(listener.fd, POLLIN));
    Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(ReceiveToEnd(server) == "word");
  }
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("difference: unshare(CLONE_NEWUSER) of a process with sockets and without /proc") {
  if (!NamespacesMayBeMade(CLONE_NEWNS)) return sdp::test::Skipped("no mount namespaces here");
  if (!NamespacesMayBeMade(CLONE_NEWUSER)) return sdp::test::Skipped("no user namespaces here");
  const bool preload = UnderThePreload();
  const pid_t pid = Child([preload] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 1;
    if (umount2("/proc", MNT_DETACH) != 0) return 2;
    Pair pair = MakePair();
    errno = 0;
    const int result = unshare(CLONE_NEWUSER);
    if (preload ? result != -1 || errno != EINVAL : result != 0) return 3;
    return SendAll(pair.client, "on") && ReceiveExactly(pair.server, 2) == "on" ? 0 : 4;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
