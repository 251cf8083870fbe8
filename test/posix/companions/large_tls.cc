// A program whose thread-local variables leave little of a small stack: the C library takes them out of it.
// Connects to itself without blocking, sends more than its other end reads, closes, and reads the rest; exits
// 0.
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

namespace {

volatile thread_local char large[245'000];

bool Wait(int fd, short events) {
  pollfd wanted{.fd = fd, .events = events, .revents = 0};
  return poll(&wanted, 1, 20'000) == 1;
}

}  // namespace

int main() {
  large[0] = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, name, length) != 0 || getsockname(listener, name, &length) != 0 ||
      listen(listener, 8) != 0)
    return 1;
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (connect(client, name, length) != 0 && errno != EINPROGRESS) return 2;
  if (!Wait(listener, POLLIN)) return 3;
  const int server = accept(listener, nullptr, nullptr);
  if (server < 0 || !Wait(client, POLLOUT)) return 4;
  std::vector<char> data(size_t{1} << 20, 'x');
  size_t sent = 0;
  for (ssize_t n; (n = send(client, data.data(), data.size(), MSG_NOSIGNAL)) > 0;)
    sent += static_cast<size_t>(n);
  if (errno != EAGAIN || close(client) != 0) return 5;
  size_t got = 0;
  for (ssize_t n; (n = recv(server, data.data(), data.size(), 0)) > 0;) got += static_cast<size_t>(n);
  return got == sent ? 0 : 6;
}
