// A process that SIGTERM ends with bytes unsent or unread: what its peer gets.
#include <sys/wait.h>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

struct Sent {
  size_t bytes = 0;
  Fd peer;
};

// A child connects, and sends of `data` as much as is taken without blocking, or all of it; then SIGTERM ends
// it.
Sent SendAndBeTerminated(const std::string& data, bool blocking) {
  Listener listener = Listen();
  Pipe told;
  const pid_t pid = Fork([&] {
    signal(SIGTERM, SIG_DFL);  // the test framework has a handler
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    SetNonblocking(client, !blocking);
    size_t sent = 0;
    while (sent < data.size()) {
      const ssize_t n =
          send(client, data.data() + sent, std::min<size_t>(data.size() - sent, 10'000), MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    if (write(told.out, &sent, sizeof sent) != sizeof sent) return 2;
    for (;;) pause();
  });
  Sent result;
  result.peer.reset(accept(listener.fd, nullptr, nullptr));
  REQUIRE(result.peer >= 0);
  REQUIRE(WaitFor(told.in, POLLIN));
  REQUIRE(read(told.in, &result.bytes, sizeof result.bytes) == sizeof result.bytes);
  REQUIRE(kill(pid, SIGTERM) == 0);
  const int status = Reap(pid);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGTERM);
  return result;
}

// All that comes, however that ends.
std::string ReadAll(int fd) {
  std::string all;
  std::vector<char> room(70'000);
  ssize_t n;
  while ((n = recv(fd, room.data(), room.size(), 0)) > 0) all.append(room.data(), static_cast<size_t>(n));
  return all;
}

TEST_CASE("terminated: what was sent while the peer had room arrives whole") {
  const size_t size = GENERATE(size_t{1}, size_t{1000}, size_t{60'000});
  const std::string data = Pattern(size);
  const Sent sent = SendAndBeTerminated(data, true);
  REQUIRE(sent.bytes == size);
  REQUIRE(ReadAll(sent.peer) == data);
}

TEST_CASE(
    "terminated: of what a sender got rid of before its peer read anything, the beginning arrives without a "
    "gap") {
  const std::string data = Pattern(16'000'000);
  const Sent sent = SendAndBeTerminated(data, false);
  REQUIRE(sent.bytes < data.size());
  const std::string got = ReadAll(sent.peer);
  REQUIRE(got.size() >= 60'000);
  REQUIRE(got.size() <= sent.bytes);
  REQUIRE(Hash(got) == Hash(data.substr(0, got.size())));
}

TEST_CASE("terminated: all that a sender got rid of before its peer read anything arrives") {
  const Sent sent = SendAndBeTerminated(Pattern(16'000'000), false);
  REQUIRE(ReadAll(sent.peer).size() == sent.bytes);
}

TEST_CASE("terminated: with bytes unread the peer is reset") {
  Listener listener = Listen();
  Pipe told;
  const pid_t pid = Fork([&] {
    signal(SIGTERM, SIG_DFL);  // the test framework has a handler
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    char c;
    if (recv(client, &c, 1, 0) != 1 || write(told.out, &c, 1) != 1) return 2;
    for (;;) pause();
  });
  Fd peer(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(peer, Pattern(50'000)));
  REQUIRE(WaitFor(told.in, POLLIN));
  REQUIRE(kill(pid, SIGTERM) == 0);
  REQUIRE(WIFSIGNALED(Reap(pid)));
  char c;
  REQUIRE_ERRNO(recv(peer, &c, 1, 0), ECONNRESET);
  REQUIRE_ERRNO(send(peer, &c, 1, MSG_NOSIGNAL), EPIPE);
}

}  // namespace
}  // namespace posix_test
