// Several processes hold a connection, and go on writing to it although nobody reads what its peer has sent.
#include <sys/ioctl.h>

#include <vector>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

TEST_CASE("fork: three blocked writers go on, although nobody reads what has come") {
  constexpr size_t kUnread = 128 << 10, kMuch = 4 << 20;
  constexpr int kWriters = 3;
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, std::string(kUnread, 'u')));
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(Fork([&] {
      pair.client.reset();
      // It is seen, and stays unread.
      std::string unread(kUnread, 0);
      if (recv(pair.server, unread.data(), unread.size(), MSG_PEEK) <= 0) return 1;
      return SendAll(pair.server, std::string(kMuch, static_cast<char>('a' + i))) ? 0 : 2;
    }));
  }
  size_t got[kWriters] = {};
  for (size_t left = kWriters * kMuch; left > 0;) {
    const std::string some = ReceiveExactly(pair.client, std::min<size_t>(left, 256 << 10));
    REQUIRE(!some.empty());
    for (const char c : some) {
      REQUIRE((c >= 'a' && c < 'a' + kWriters));
      ++got[c - 'a'];
    }
    left -= some.size();
  }
  for (const size_t n : got) REQUIRE(n == kMuch);
  for (const pid_t pid : writers) REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(ReceiveExactly(pair.server, kUnread) == std::string(kUnread, 'u'));
}

// More can be unread than plain TCP would take where the library lets a connection have many Private Buffers:
// family 27 has an option for that.
Fd NativeSocket() {
  const int native = socket(27, SOCK_STREAM, 0);
  return native >= 0 ? Fd(native) : TcpSocket();
}
Listener ListenWithBuffers(int buffers) {
  constexpr int kLevelSdp = 1025, kBuffers = 82;
  Listener listener{NativeSocket(), Loopback(AF_INET)};
  setsockopt(listener.fd, kLevelSdp, kBuffers, &buffers, sizeof buffers);
  REQUIRE(bind(listener.fd, listener.address.get(), listener.address.length) == 0);
  REQUIRE(listen(listener.fd, 8) == 0);
  listener.address = LocalOf(listener.fd);
  return listener;
}

// All that comes is seen on the way, and stays unread: until no more comes.
bool LetAllCome(int fd) {
  int unread = 0, before = -1;
  for (int still = 0; still < 3; before = unread) {
    PollOne(fd, POLLPRI, kQuietMs);
    if (ioctl(fd, FIONREAD, &unread) != 0) return false;
    still = unread == before ? still + 1 : 0;
  }
  return true;
}

// More comes than the library reads ahead for others.
TEST_CASE("fork: a blocked writer goes on, although nobody reads the much that has come") {
  constexpr size_t kUnread = 7 << 20, kMuch = 16 << 20;
  Listener listener = ListenWithBuffers(128);
  const std::string up = Pattern(kUnread, 3), down = Pattern(kMuch, 4);
  Pipe begin;
  const pid_t peer = Fork([&] {
    listener.fd.reset();
    Fd client = NativeSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    auto sender = Async([&] { return SendAll(client, up) && shutdown(client, SHUT_WR) == 0; });
    char c;
    if (read(begin.in, &c, 1) != 1) return 3;
    const std::string got = ReceiveExactly(client, down.size());
    return Hash(got) == Hash(down) && sender.get() ? 0 : 2;
  });
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  const pid_t idle = Fork([] {
    for (;;) pause();
    return 0;
  });
  REQUIRE(LetAllCome(server));
  begin.Tell();
  REQUIRE(SendAll(server, down));
  REQUIRE(Hash(ReceiveToEnd(server)) == Hash(up));
  REQUIRE(ExitedWith(Reap(peer), 0));
  Kill(idle);
}

// To the end, in large pieces: what is unread goes from process to process with each. And patiently: a
// sanitizer takes its time for that.
std::string ReceiveMuch(int fd) {
  std::string data, piece(2 << 20, 0);
  while (PollOne(fd, POLLIN, 4 * kPatienceMs) != 0) {
    const ssize_t n = recv(fd, piece.data(), piece.size(), 0);
    if (n <= 0) return n == 0 ? data : std::string();
    data.append(piece, 0, static_cast<size_t>(n));
  }
  return {};
}

// As much is unread as one process could not leave to others.
TEST_CASE("fork: a blocking send goes on while another process leaves much unread") {
  constexpr size_t kUnread = 24 << 20, kMuch = 32 << 20;
  Listener listener = ListenWithBuffers(1000);
  Pipe begin, sent;
  const std::string up = Pattern(kUnread, 3), down = Pattern(kMuch, 4);
  const pid_t peer = Fork([&] {
    listener.fd.reset();
    begin.out.reset();
    Fd client = NativeSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    auto sender = Async([&] { return SendAll(client, up) && shutdown(client, SHUT_WR) == 0; });
    char c;
    if (read(begin.in, &c, 1) != 1) return 2;
    const std::string got = ReceiveMuch(client);
    return sender.get() && Hash(got) == Hash(down) ? 0 : 3;
  });
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  const pid_t reader = Fork([&] {
    if (!LetAllCome(server)) return 1;
    begin.Tell();
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

}  // namespace
}  // namespace posix_test
