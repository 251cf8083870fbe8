// Several processes write to one connection, and nobody reads what its peer has sent.
#include <sys/ioctl.h>
#include <sys/prctl.h>

#include <vector>

#include "test/posix/support.h"

namespace posix_test {
namespace {

TEST_CASE("fork: three blocked writers go on, although nobody reads what has come") {
  constexpr size_t kUnread = 128 << 10, kMuch = 4 << 20;
  constexpr int kWriters = 3;
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, std::string(kUnread, 'u')));
  std::vector<pid_t> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(Child([&] {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
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

// More comes than the library reads ahead for others, where it lets a connection have that: family 27 has an option for it.
TEST_CASE("fork: a blocked writer goes on, although nobody reads the much that has come") {
  constexpr size_t kUnread = 7 << 20, kMuch = 16 << 20;
  constexpr int kLevelSdp = 1025, kBuffers = 82;
  const auto Socket = [] {
    const int native = socket(27, SOCK_STREAM, 0);
    return native >= 0 ? Fd(native) : TcpSocket();
  };
  Fd listening = Socket();
  const int buffers = 128;
  setsockopt(listening, kLevelSdp, kBuffers, &buffers, sizeof buffers);
  Address address = Loopback(AF_INET);
  REQUIRE(bind(listening, address.get(), address.length) == 0);
  REQUIRE(listen(listening, 8) == 0);
  address = LocalOf(listening);
  const std::string up = Pattern(kUnread, 3), down = Pattern(kMuch, 4);
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  const pid_t peer = Child([&] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    listening.reset();
    Fd client = Socket();
    if (connect(client, address.get(), address.length) != 0) return 1;
    auto sender = Async([&] { return SendAll(client, up) && shutdown(client, SHUT_WR) == 0; });
    char c;
    if (read(in, &c, 1) != 1) return 3;
    const std::string got = ReceiveExactly(client, down.size());
    return Hash(got) == Hash(down) && sender.get() ? 0 : 2;
  });
  Fd server(accept(listening, nullptr, nullptr));
  REQUIRE(server >= 0);
  const pid_t idle = Child([] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
    return 0;
  });
  // What comes is seen, and stays unread.
  int unread = 0, before = -1;
  for (int still = 0; still < 3; before = unread) {
    PollOne(server, POLLPRI, kQuietMs);
    REQUIRE(ioctl(server, FIONREAD, &unread) == 0);
    still = unread == before ? still + 1 : 0;
  }
  REQUIRE(write(out, "x", 1) == 1);
  REQUIRE(SendAll(server, down));
  REQUIRE(Hash(ReceiveToEnd(server)) == Hash(up));
  REQUIRE(ExitedWith(Reap(peer), 0));
  kill(idle, SIGKILL);
  Reap(idle);
}

}  // namespace
}  // namespace posix_test
