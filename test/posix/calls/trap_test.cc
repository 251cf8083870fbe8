// Traps that other socket libraries have fallen into and that no other case is about. README.md lists all of
// them with their cases.
#include <netdb.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>

#include <filesystem>
#include <thread>

#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

// What a program compiled with _FORTIFY_SOURCE calls.
extern "C" {
ssize_t __read_chk(int fd, void* buffer, size_t length, size_t room);
ssize_t __recv_chk(int fd, void* buffer, size_t length, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void* buffer, size_t length, size_t room, int flags, sockaddr* address,
                       socklen_t* address_length);
int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t room);
int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t room);
}

namespace posix_test {
namespace {

TEST_CASE("traps: the calls of a fortified program") {
  Pair pair = MakePair();
  char data[16] = {};
  REQUIRE(SendAll(pair.client, "abcdefghi"));
  pollfd one{pair.server, POLLIN, 0};
  REQUIRE(__poll_chk(&one, 1, kPatienceMs, sizeof one) == 1);
  const timespec patience{.tv_sec = kPatienceMs / 1000, .tv_nsec = 0};
  REQUIRE(__ppoll_chk(&one, 1, &patience, nullptr, sizeof one) == 1);
  REQUIRE(__read_chk(pair.server, data, 3, sizeof data) == 3);
  REQUIRE(__recv_chk(pair.server, data, 3, sizeof data, 0) == 3);
  REQUIRE(__recvfrom_chk(pair.server, data, 3, sizeof data, 0, nullptr, nullptr) == 3);
  REQUIRE(std::string(data) == "ghi");
}

TEST_CASE("traps: a fortified call that overflows ends the program") {
  Pair pair = MakePair();
  const pid_t pid = Child([&] {
    const Fd null(open("/dev/null", O_WRONLY));
    dup2(null, STDERR_FILENO);
    char data[4];
    __read_chk(pair.server, data, 100, sizeof data);
    return 0;
  });
  const int status = Reap(pid);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGABRT);
}

TEST_CASE("traps: the C library's own sockets beside ours") {
  Pair pair = MakePair();
  for (int i = 0; i < 3; ++i) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    REQUIRE(getaddrinfo("localhost", "80", &hints, &found) == 0);
    freeaddrinfo(found);
    openlog("posix-tests", LOG_NDELAY, LOG_USER);
    syslog(LOG_DEBUG, "a line of the socket tests");
    REQUIRE(SendAll(pair.client, "between"));
    REQUIRE(ReceiveExactly(pair.server, 7) == "between");
    closelog();
  }
}

TEST_CASE("traps: getsockname after bind to port 0 and after listen and after connect") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Fd listener = TcpSocket(family);
  Address address = Loopback(family);
  REQUIRE(bind(listener, address.get(), address.length) == 0);
  const uint16_t port = LocalOf(listener).port();
  REQUIRE(port != 0);
  REQUIRE(listen(listener, 4) == 0);
  REQUIRE(LocalOf(listener).port() == port);
  Fd client = TcpSocket(family);
  REQUIRE(LocalOf(client).port() == 0);
  Address target = LocalOf(listener);
  REQUIRE(connect(client, target.get(), target.length) == 0);
  REQUIRE(LocalOf(client).port() != 0);
  REQUIRE(LocalOf(client).ToString() == Loopback(family, LocalOf(client).port()).ToString());
}

TEST_CASE("traps: the numbers in /proc are the program's own, low and close together") {
  Pair pair = MakePair();
  const auto numbers = [] {
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      found.push_back(std::stoi(entry.path().filename()));
    return found;
  };
  REQUIRE(!numbers().empty());
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    std::error_code error;
    const auto link = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
    REQUIRE(!error);
    REQUIRE(link.string().rfind("socket:[", 0) == 0);
  }
  Fd next(dup(STDIN_FILENO));
  REQUIRE(next < 16);
}

TEST_CASE("traps: close in one thread while another sleeps in each kind of call") {
  if (kUnderTsan) return Impossible(why::kClose);
  // TCP's sleeper goes on until the peer speaks: the open file lives as long as the call.
  Pair pair = MakePair();
  const int number = pair.server;
  auto sleeper = Async([&] {
    char data[8];
    return recv(number, data, sizeof data, 0);
  });
  REQUIRE(StillRunning(sleeper));
  pair.server.reset();
  Fd other(dup(STDIN_FILENO));  // the number serves something else
  SendAll(pair.client, "wake up");
  pair.client.reset();
  const ssize_t got = Get(sleeper);
  REQUIRE(got >= -1);
  REQUIRE(fcntl(other, F_GETFD) >= 0);
}

TEST_CASE("traps: a child of vfork that touches nothing of ours") {
  Pair pair = MakePair();
  for (int i = 0; i < 5; ++i) {
    const pid_t pid = vfork();
    if (pid == 0) {
      close(pair.server);  // of its own descriptors
      _exit(3);
    }
    REQUIRE(pid > 0);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    REQUIRE(ExitedWith(status, 3));
    REQUIRE(SendAll(pair.client, "still"));
    REQUIRE(ReceiveExactly(pair.server, 5) == "still");
  }
}

TEST_CASE("traps: descriptors named in sets of poll that are negative, closed or the same twice") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  pollfd fds[4] = {
      {-1, POLLIN, 99}, {pair.server, POLLIN, 0}, {9999, POLLIN, 0}, {pair.server, POLLIN | POLLOUT, 0}};
  REQUIRE(poll(fds, 4, kPatienceMs) == 3);
  REQUIRE(fds[0].revents == 0);
  REQUIRE(fds[1].revents == POLLIN);
  REQUIRE(fds[2].revents == POLLNVAL);
  REQUIRE(fds[3].revents == (POLLIN | POLLOUT));
}

}  // namespace
}  // namespace posix_test
