// Programs that have no memory left.
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

// No more than it has, and `spare` bytes.
bool LimitMemory(rlim_t spare) {
  char text[64] = {};
  const Fd file(open("/proc/self/statm", O_RDONLY));
  if (read(file, text, sizeof text - 1) <= 0) return false;
  const rlim_t size = std::strtoul(text, nullptr, 10) * static_cast<rlim_t>(getpagesize()) + spare;
  const rlimit limit{.rlim_cur = size, .rlim_max = size};
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

// A kernel's connections take none of the process's. What a call needs and cannot have may fail it, but never
// ends the process.
TEST_CASE("surroundings: a process without memory to be had connects, accepts, forks and ends by itself",
          "[mixed]") {
  if (kUnderAsan || kUnderTsan)
    return Impossible(
        "a sanitizer's run time takes addresses for itself as it goes, and ends the process where there are "
        "none");
  const rlim_t spare = GENERATE(rlim_t{0}, rlim_t{64} << 10, rlim_t{256} << 10, rlim_t{1} << 20);
  CAPTURE(spare);
  const pid_t pid = Child([spare] {
    signal(SIGPIPE, SIG_IGN);
    Listener listener = Listen();
    Pair pair = ConnectTo(listener);
    if (!SendAll(pair.client, "question") || ReceiveExactly(pair.server, 8) != "question") return 1;
    SetNonblocking(listener.fd);
    int fds[40];
    if (!LimitMemory(spare)) return 9;
    for (int i = 0; i < 40; i += 2) {
      fds[i] = socket(AF_INET, SOCK_STREAM, 0);
      if (fds[i] < 0) return 2;
      if (connect(fds[i], listener.address.get(), listener.address.length) != 0 && errno != ENOMEM) return 3;
      fds[i + 1] = accept(listener.fd, nullptr, nullptr);
      if (fds[i + 1] < 0 && errno != EAGAIN && errno != ENOMEM) return 4;
    }
    for (int i = 0; i < 3; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        (void)!write(pair.client, "x", 1);
        _exit(0);
      }
      int status = 0;
      if (child < 0 || waitpid(child, &status, 0) != child) return 5;
      if (!WIFEXITED(status)) return 6;
    }
    for (const int fd : fds) {
      if (fd >= 0 && close(fd) != 0) return 7;
    }
    return 0;
  });
  const int status = Reap(pid);
  INFO("status " << status);
  REQUIRE(ExitedWith(status, 0));
}

// The kernel's epoll_wait takes no memory, and so programs take ENOMEM for a fault of their own.
TEST_CASE("surroundings: epoll_wait of a process without memory to be had fails for no reason of its own") {
  if (kUnderAsan || kUnderTsan) return Impossible("a sanitizer's run time ends a process without memory");
  constexpr size_t kBytes = 4 << 20;
  Listener listener = Listen();
  const pid_t writer = Child([&] {
    const Fd fd(socket(AF_INET, SOCK_STREAM, 0));
    return connect(fd, listener.address.get(), listener.address.length) == 0 &&
                   SendAll(fd, std::string(kBytes, 'x'))
               ? 0
               : 1;
  });
  const pid_t reader = Child([&] {
    const Fd fd(accept(listener.fd, nullptr, nullptr));
    SetNonblocking(fd);
    const Fd set(epoll_create1(0));
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
    if (fd < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0 || !LimitMemory(0)) return 9;
    size_t got = 0;
    char buffer[1000];
    for (int fruitless = 0; got < kBytes && fruitless < 1000;) {
      if (epoll_wait(set, &event, 1, 1) < 0 && errno != EINTR) return errno;
      const ssize_t n = read(fd, buffer, sizeof buffer);
      n > 0 ? got += static_cast<size_t>(n) : ++fruitless;
      if (n < 0 && errno != EAGAIN && errno != ENOMEM) break;  // the link may go where a read finds no memory
    }
    return 0;
  });
  const int status = Reap(reader);
  INFO("status " << status);
  CHECK(ExitedWith(status, 0));
  kill(writer, SIGKILL);
  (void)Reap(writer);
}

struct Server {
  pid_t pid;
  Address address;
};

// The server is another process. Its memory is not limited.
Server AcceptElsewhere() {
  Pipe named;
  Server server{};
  server.pid = Fork([&]() -> int {
    Listener listener = Listen();
    if (write(named.out, &listener.address, sizeof listener.address) != sizeof listener.address) return 1;
    for (;;) (void)accept(listener.fd, nullptr, nullptr);
  });
  REQUIRE(read(named.in, &server.address, sizeof server.address) == sizeof server.address);
  return server;
}

bool OtherThreadsSleep() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), closedir);
  while (const dirent* const entry = readdir(tasks.get())) {
    const pid_t tid = std::atoi(entry->d_name);
    if (tid != 0 && tid != getpid() && !IsAsleep(tid)) return false;
  }
  return true;
}

// A helper thread goes on with it, and finds no memory. The program, which waits, has to hear of the end.
TEST_CASE("surroundings: a connect that runs out of memory on its way comes to an end", "[mixed]") {
  if (kUnderAsan || kUnderTsan) return Impossible("a sanitizer's run time ends a process without memory");
  const rlim_t spare = GENERATE(rlim_t{0}, rlim_t{64} << 10, rlim_t{256} << 10);
  const bool at_once = GENERATE(true, false);  // else once the helper thread can only wait
  CAPTURE(spare, at_once);
  Pipe limited;
  Server server = AcceptElsewhere();
  REQUIRE(kill(server.pid, SIGSTOP) == 0);  // the kernel takes the connection, and nothing answers
  int stopped = 0;
  REQUIRE((waitpid(server.pid, &stopped, WUNTRACED) == server.pid && WIFSTOPPED(stopped)));
  const pid_t client = Fork([&] {
    const Fd fd(socket(AF_INET, SOCK_STREAM, 0));
    SetNonblocking(fd);
    (void)!connect(fd, server.address.get(), server.address.length);
    if (!at_once && !Eventually(OtherThreadsSleep)) return 8;
    if (!LimitMemory(spare)) return 9;
    limited.Tell();
    pollfd end{.fd = fd, .events = POLLIN | POLLOUT, .revents = 0};
    int ready;
    while ((ready = poll(&end, 1, kPatienceMs)) == -1 && errno == ENOMEM) {
    }
    if (ready != 1) return 1;
    int error = -1;
    socklen_t size = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return 2;
    if (error != 0) return error == ENOMEM || error == ECONNRESET ? 0 : 3;
    Address peer;
    return getpeername(fd, peer.get(), &peer.length) == 0 ? 0 : 4;
  });
  const bool heard = limited.Hear();
  REQUIRE(kill(server.pid, SIGCONT) == 0);
  const int status = Reap(client);
  INFO("status " << status);
  CHECK(heard);
  CHECK(ExitedWith(status, 0));
  Kill(server.pid);
}

// The library takes what it needs with the first socket. If it cannot, the socket stays the kernel's.
TEST_CASE("surroundings: a process without memory to be had makes its first socket", "[mixed]") {
  if (kUnderAsan || kUnderTsan) return Impossible("a sanitizer's run time ends a process without memory");
  Server server = AcceptElsewhere();
  const pid_t client = Fork([&] {
    Program program("", -1);
    program.Use("posix_first_socket");
    std::string port = std::to_string(server.address.port());
    const std::vector<char*> argv{program.path.data(), port.data(), nullptr};
    execve(program.path.c_str(), argv.data(), program.envp.data());
    return 8;
  });
  const int status = Reap(client);
  INFO("status " << status);
  CHECK(ExitedWith(status, 0));
  Kill(server.pid);
}

}  // namespace
}  // namespace posix_test
