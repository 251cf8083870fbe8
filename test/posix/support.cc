#include "test/posix/support.h"

#include <sys/syscall.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "test/support/in_child.h"

namespace posix_test {

uint16_t Address::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

std::string Address::ToString() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, text, sizeof(text));
    return "[" + std::string(text) + "]:" + std::to_string(port());
  }
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, text, sizeof(text));
  return std::string(text) + ":" + std::to_string(port());
}

namespace {

Address Make(int family, in_addr_t v4, const in6_addr& v6, uint16_t port) {
  Address address;
  if (family == AF_INET6) {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = v6;
    in6.sin6_port = htons(port);
    address.length = sizeof(in6);
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(v4);
    in.sin_port = htons(port);
    address.length = sizeof(in);
  }
  return address;
}

}  // namespace

Address Loopback(int family, uint16_t port) {
  in_addr v4{.s_addr = htonl(INADDR_LOOPBACK)};
  if (const char* const address = getenv("SDP_TEST_ADDRESS")) inet_pton(AF_INET, address, &v4);
  return Make(family, ntohl(v4.s_addr), in6addr_loopback, port);
}
Address Any(int family, uint16_t port) { return Make(family, INADDR_ANY, in6addr_any, port); }

Address LocalOf(int fd) {
  Address address;
  REQUIRE(getsockname(fd, address.get(), &address.length) == 0);
  return address;
}

Address PeerOf(int fd) {
  Address address;
  REQUIRE(getpeername(fd, address.get(), &address.length) == 0);
  return address;
}

Address ClosedPort(int family) {
  // Kept, so that nobody else's listener gets it; by bare calls, so that no library in between has a socket
  // of it.
  const long fd = syscall(SYS_socket, family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  Address address = Loopback(family);
  REQUIRE(syscall(SYS_bind, fd, address.get(), address.length) == 0);
  Address bound;
  REQUIRE(syscall(SYS_getsockname, fd, bound.get(), &bound.length) == 0);
  return bound;
}

Listener Listen(int family, int backlog, int type_flags) {
  Listener listener{TcpSocket(family, type_flags), {}};
  Address address = Loopback(family);
  REQUIRE(bind(listener.fd, address.get(), address.length) == 0);
  REQUIRE(listen(listener.fd, backlog) == 0);
  listener.address = LocalOf(listener.fd);
  return listener;
}

Fd Connected(Listener& listener) {
  Fd client = TcpSocket(listener.address.storage.ss_family);
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  return client;
}

Pair ConnectTo(Listener& listener) {
  Pair pair;
  pair.client = Connected(listener);
  REQUIRE(WaitFor(listener.fd, POLLIN));
  pair.server = Fd(accept(listener.fd, nullptr, nullptr));
  REQUIRE(pair.server >= 0);
  return pair;
}

Pair MakePair(int family) {
  Listener listener = Listen(family);
  return ConnectTo(listener);
}

Fd TcpSocket(int family, int type_flags) {
  Fd fd(socket(family, SOCK_STREAM | type_flags, 0));
  REQUIRE(fd >= 0);
  return fd;
}

void SetNonblocking(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  REQUIRE(flags >= 0);
  REQUIRE(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

bool IsNonblocking(int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

void SetOption(int fd, int level, int name, int value) {
  REQUIRE(setsockopt(fd, level, name, &value, sizeof(value)) == 0);
}

int GetOption(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  REQUIRE(getsockopt(fd, level, name, &value, &length) == 0);
  return value;
}

short PollOne(int fd, short events, int timeout_ms) {
  pollfd p{fd, events, 0};
  const int n = poll(&p, 1, timeout_ms);
  return n <= 0 ? 0 : p.revents;
}

bool WaitFor(int fd, short events, int timeout_ms) { return (PollOne(fd, events, timeout_ms) & events) != 0; }

bool Eventually(const std::function<bool()>& condition) {
  Stopwatch watch;
  while (!condition()) {
    if (watch.ms() > kPatienceMs) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool SendAll(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) {
      if (!WaitFor(fd, POLLOUT)) return false;
      continue;
    }
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

std::string ReceiveExactly(int fd, size_t size) {
  std::string data(size, '\0');
  size_t got = 0;
  while (got < size) {
    if (PollOne(fd, POLLIN) == 0) break;
    const ssize_t n = recv(fd, data.data() + got, size - got, 0);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  data.resize(got);
  return data;
}

std::string ReceiveToEnd(int fd) {
  std::string data;
  std::vector<char> buffer(64 * 1024);
  for (;;) {
    if (PollOne(fd, POLLIN) == 0) {
      errno = ETIMEDOUT;
      return {};
    }
    const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
    if (n == 0) return data;
    if (n < 0 && errno == EAGAIN) continue;
    if (n < 0) return {};
    data.append(buffer.data(), static_cast<size_t>(n));
  }
}

size_t Fill(int fd) {
  const std::string block = Pattern(16 * 1024);
  size_t total = 0;
  // What waits here moves on to the reader's side for some time yet: full is what is still full after a
  // while.
  for (bool waited = false; total < (64u << 20);) {
    const ssize_t n = send(fd, block.data(), block.size(), MSG_NOSIGNAL);
    if (n > 0) {
      total += static_cast<size_t>(n);
      waited = false;
      continue;
    }
    if (n == 0 || errno != EAGAIN) return 0;
    if (waited) return total;
    waited = !WaitFor(fd, POLLOUT, kQuietMs);
  }
  return total;
}

size_t Drain(int fd) {
  std::vector<char> buffer(64 * 1024);
  size_t total = 0;
  ssize_t n;
  while ((n = recv(fd, buffer.data(), buffer.size(), 0)) > 0) total += static_cast<size_t>(n);
  return total;
}

std::string Pattern(size_t size, uint32_t seed) {
  std::string data(size, '\0');
  uint32_t state = seed * 2654435761u + 1;
  for (char& c : data) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    c = static_cast<char>(state >> 11);
  }
  return data;
}

uint64_t Hash(const std::string& data) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : data) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

pid_t Child(const std::function<int()>& body) {
  const pid_t pid = sdp::test::ForkChild(body);
  REQUIRE(pid >= 0);
  return pid;
}

int Reap(pid_t pid) {
  int status = 0;
  if (Eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; })) return status;
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return -1;
}

bool ExitedWith(int status, int code) {
  if (status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == code) return true;
  // Shown with the assertion that this makes fail.
  if (status < 0) {
    UNSCOPED_INFO("the child outstayed patience");
  } else if (WIFEXITED(status)) {
    UNSCOPED_INFO("the child exited with " << WEXITSTATUS(status));
  } else {
    UNSCOPED_INFO("the child was ended by signal " << WTERMSIG(status));
  }
  return false;
}

void SetTimeout(int fd, int name, int ms) {
  const timeval time{.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  REQUIRE(setsockopt(fd, SOL_SOCKET, name, &time, sizeof time) == 0);
}

template std::future<void> AsyncCall(std::function<void()>);
template std::future<bool> AsyncCall(std::function<bool()>);
template std::future<int> AsyncCall(std::function<int()>);
template std::future<ssize_t> AsyncCall(std::function<ssize_t()>);
template std::future<std::string> AsyncCall(std::function<std::string()>);

bool IsAsleep(pid_t tid) {
  const std::string directory = "/proc/" + std::to_string(tid);
  std::ifstream stat(directory + "/stat");
  std::string line;
  std::getline(stat, line);
  const size_t end = line.rfind(") ");
  if (end == std::string::npos || line[end + 2] != 'S') return false;
  // "running", or the number of the system call. Where a kernel does not tell, the state has to do.
  std::string call;
  std::ifstream(directory + "/syscall") >> call;
  return call != "running" && call != std::to_string(SYS_futex);
}

}  // namespace posix_test
