// How connections end: half close, end of stream, resets, broken pipes, time-outs.
#include <dirent.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <atomic>
#include <limits>

#include "test/posix/links.h"
#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

void LingerZero(int fd) {
  const linger value{1, 0};
  REQUIRE(setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof(value)) == 0);
}

volatile sig_atomic_t pipe_signals = 0;
void CountPipe(int) { pipe_signals = pipe_signals + 1; }

class PipeSignalCounter {
 public:
  PipeSignalCounter() {
    pipe_signals = 0;
    struct sigaction action {};
    action.sa_handler = CountPipe;
    sigaction(SIGPIPE, &action, &old_);
  }
  ~PipeSignalCounter() { sigaction(SIGPIPE, &old_, nullptr); }

 private:
  struct sigaction old_;
};

TEST_CASE("ending: half close by either end first") {
  Pair pair = MakePair();
  const bool client_first = GENERATE(true, false);
  const int a = client_first ? pair.client : pair.server, z = client_first ? pair.server : pair.client;
  REQUIRE(SendAll(a, "last words"));
  REQUIRE(shutdown(a, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(z) == "last words");
  char c;
  REQUIRE(recv(z, &c, 1, 0) == 0);
  const std::string answer = Pattern(1'000'000);
  auto receiver = Async([&] { return ReceiveToEnd(a); });
  REQUIRE(SendAll(z, answer));
  REQUIRE(shutdown(z, SHUT_WR) == 0);
  REQUIRE(Hash(Get(receiver)) == Hash(answer));
  REQUIRE_ERRNO(send(a, &c, 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE_ERRNO(send(z, &c, 1, MSG_NOSIGNAL), EPIPE);
}

TEST_CASE("ending: both half close at once") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "a"));
  REQUIRE(SendAll(pair.server, "z"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(shutdown(pair.server, SHUT_WR) == 0);
  REQUIRE(ReceiveToEnd(pair.client) == "z");
  REQUIRE(ReceiveToEnd(pair.server) == "a");
}

TEST_CASE("ending: SHUT_RDWR ends both directions") {
  Pair pair = MakePair();
  REQUIRE(shutdown(pair.client, SHUT_RDWR) == 0);
  char c;
  REQUIRE(recv(pair.client, &c, 1, 0) == 0);
  REQUIRE_ERRNO(send(pair.client, &c, 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE(ReceiveToEnd(pair.server).empty());
  REQUIRE((PollOne(pair.client, POLLIN | POLLOUT | POLLRDHUP) & (POLLIN | POLLRDHUP)) ==
          (POLLIN | POLLRDHUP));
}

TEST_CASE("ending: SHUT_RD makes receives end") {
  Pair pair = MakePair();
  char c;
  REQUIRE(shutdown(pair.client, SHUT_RD) == 0);
  REQUIRE(recv(pair.client, &c, 1, 0) == 0);
  REQUIRE((PollOne(pair.client, POLLIN | POLLRDHUP, 0) & (POLLIN | POLLRDHUP)) == (POLLIN | POLLRDHUP));
  REQUIRE(SendAll(pair.client, Pattern(100'000)));
  REQUIRE(ReceiveExactly(pair.server, 100'000) == Pattern(100'000));
}

TEST_CASE("ending: SHUT_RD leaves to be read what has come and what comes") {
  Pair pair = MakePair();
  char room[32];
  REQUIRE(SendAll(pair.server, "before"));
  REQUIRE(WaitFor(pair.client, POLLIN));
  REQUIRE(shutdown(pair.client, SHUT_RD) == 0);
  REQUIRE(recv(pair.client, room, sizeof room, 0) == 6);
  REQUIRE(recv(pair.client, room, sizeof room, 0) == 0);
  REQUIRE(SendAll(pair.server, "behind it"));
  REQUIRE(Eventually([&] { return recv(pair.client, room, sizeof room, 0) == 9; }));
  REQUIRE(std::string(room, 9) == "behind it");
  REQUIRE(recv(pair.client, room, sizeof room, 0) == 0);
}

// What the peer has read was sent, whatever became of the rest: a write fails alone where not a byte of it
// has left.
TEST_CASE("ending: a write in many pieces during which the peer goes tells what was sent") {
  const bool nonblocking = GENERATE(true, false);
  const size_t size = GENERATE(1, 16, 1000, 20'000);
  Listener listener = Listen();
  const std::string data = Pattern(size);
  std::vector<iovec> pieces(1024, {const_cast<char*>(data.data()), data.size()});
  for (int i = 0; i < 100; ++i) {
    Pair pair = ConnectTo(listener);
    SetNonblocking(pair.client, nonblocking);
    LingerZero(pair.server);
    auto peer = Async([&] {
      char byte;
      const ssize_t read = recv(pair.server, &byte, 1, 0);
      pair.server.reset();
      return read;
    });
    struct sigaction ignore {};
    struct sigaction before {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before);
    errno = 0;
    const ssize_t sent = writev(pair.client, pieces.data(), static_cast<int>(pieces.size()));
    const int error = errno;
    sigaction(SIGPIPE, &before, nullptr);
    CAPTURE(i, size, nonblocking, sent, strerrorname_np(error));
    REQUIRE(Get(peer) == 1);
    REQUIRE(sent > 0);
  }
}

TEST_CASE("ending: SHUT_RDWR resets a peer that goes on sending, whoever makes calls", "[abort]") {
  const size_t size = GENERATE(1, 1'000'000);
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.server, "before"));
  REQUIRE(WaitFor(pair.client, POLLIN));
  REQUIRE(shutdown(pair.client, SHUT_RDWR) == 0);
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  const std::string data = Pattern(size);
  REQUIRE(Eventually(
      [&] { return send(pair.server, data.data(), data.size(), MSG_NOSIGNAL) == -1 && errno == EPIPE; }));
  char room[32];
  REQUIRE(recv(pair.client, room, sizeof room, 0) == 6);  // what came before
  REQUIRE_ERRNO(recv(pair.client, room, sizeof room, 0), ECONNRESET);
  REQUIRE(recv(pair.client, room, sizeof room, 0) == 0);
}

TEST_CASE(
    "ending: SHUT_RDWR resets a peer that goes on sending, though another process has the connection, too",
    "[abort]") {
  Pair pair = MakePair();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Fd waits(ends[0]), tells(ends[1]);
  const bool parent_shuts = GENERATE(true, false);
  const pid_t pid = Child([&] {
    tells.reset();
    pair.server.reset();
    char c;
    if (!parent_shuts && shutdown(pair.client, SHUT_RDWR) != 0) return 1;
    return read(waits, &c, 1) == 0 ? 0 : 2;
  });
  if (parent_shuts) REQUIRE(shutdown(pair.client, SHUT_RDWR) == 0);
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  const std::string data = Pattern(1'000'000);
  SetNonblocking(pair.server);
  REQUIRE(Eventually(
      [&] { return send(pair.server, data.data(), data.size(), MSG_NOSIGNAL) == -1 && errno == EPIPE; }));
  tells.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("ending: a reset behind the peer's end leaves it an end, and sends end with EPIPE", "[abort]") {
  Pair pair = MakePair();
  PipeSignalCounter counter;
  char room[32];
  REQUIRE(SendAll(pair.server, "never read"));
  REQUIRE(WaitFor(pair.client, POLLIN));
  REQUIRE(SendAll(pair.client, "last words"));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(WaitFor(pair.server, POLLRDHUP));
  pair.client.reset();
  REQUIRE(WaitFor(pair.server, POLLERR));
  REQUIRE(recv(pair.server, room, sizeof room, 0) == 10);
  REQUIRE(recv(pair.server, room, sizeof room, 0) == 0);
  if (GENERATE(false, true)) {
    REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == EPIPE);
  } else {
    REQUIRE_ERRNO(send(pair.server, "x", 1, 0), EPIPE);
    REQUIRE(pipe_signals == 1);
  }
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
  REQUIRE(recv(pair.server, room, sizeof room, 0) == 0);
}

TEST_CASE("ending: a blocked receive is ended by shutdown from another thread") {
  Pair pair = MakePair();
  auto blocked = Async([&] {
    char c;
    return recv(pair.client, &c, 1, 0);
  });
  REQUIRE(StillRunning(blocked));
  REQUIRE(shutdown(pair.client, SHUT_RDWR) == 0);
  REQUIRE(Get(blocked) == 0);
}

TEST_CASE("ending: a blocked send is ended by shutdown from another thread") {
  Pair pair = MakePair();
  auto blocked = Async([&] {
    const std::string data = Pattern(64 << 20);
    return send(pair.client, data.data(), data.size(), MSG_NOSIGNAL);
  });
  REQUIRE(StillRunning(blocked, 300));
  REQUIRE(shutdown(pair.client, SHUT_RDWR) == 0);
  const ssize_t sent = Get(blocked);
  REQUIRE(sent < (64 << 20));
}

TEST_CASE("ending: errors of shutdown") {
  Pair pair = MakePair();
  REQUIRE_ERRNO(shutdown(pair.client, 7), EINVAL);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
}

TEST_CASE("ending: poll at the end of the peer's stream") {
  Pair pair = MakePair();
  REQUIRE((PollOne(pair.server, POLLIN | POLLOUT | POLLRDHUP, 0)) == POLLOUT);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(PollOne(pair.server, POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
  REQUIRE(PollOne(pair.server, POLLIN | POLLOUT | POLLRDHUP, 0) == (POLLIN | POLLOUT | POLLRDHUP));
  REQUIRE(shutdown(pair.server, SHUT_WR) == 0);
  REQUIRE(Eventually([&] { return (PollOne(pair.server, POLLIN, 0) & POLLHUP) != 0; }));
  REQUIRE(Eventually([&] { return (PollOne(pair.client, POLLIN, 0) & POLLHUP) != 0; }));
  REQUIRE(PollOne(pair.server, POLLIN | POLLOUT | POLLRDHUP, 0) == (POLLIN | POLLOUT | POLLRDHUP | POLLHUP));
}

TEST_CASE("ending: close delivers everything sent before") {
  const size_t size = GENERATE(1, 100'000, 3'000'000);
  Pair pair = MakePair();
  const std::string data = Pattern(size);
  auto sender = Async([&] {
    const bool sent = SendAll(pair.client, data);
    pair.client.reset();
    return sent;
  });
  REQUIRE(Hash(ReceiveToEnd(pair.server)) == Hash(data));
  REQUIRE(Get(sender));
}

TEST_CASE("ending: close returns although the peer does not read and the data arrive later") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const size_t sent = Fill(pair.client);
  Stopwatch watch;
  pair.client.reset();
  REQUIRE(watch.ms() < kAtOnceMs);
  REQUIRE(ReceiveToEnd(pair.server).size() == sent);
}

TEST_CASE("ending: sending to a closed peer is EPIPE with SIGPIPE once per call") {
  Pair pair = MakePair();
  PipeSignalCounter counter;
  pair.server.reset();
  REQUIRE(WaitFor(pair.client, POLLIN));
  // The first bytes may be taken before the reset comes back; a reset may show first as ECONNRESET.
  char c = 'x';
  REQUIRE(Eventually([&] { return send(pair.client, &c, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE; }));
  REQUIRE(pipe_signals == 0);
  REQUIRE_ERRNO(send(pair.client, &c, 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE(pipe_signals == 0);
  REQUIRE_ERRNO(send(pair.client, &c, 1, 0), EPIPE);
  REQUIRE(pipe_signals == 1);
  REQUIRE_ERRNO(write(pair.client, &c, 1), EPIPE);
  REQUIRE(pipe_signals == 2);
  iovec iov{&c, 1};
  REQUIRE_ERRNO(writev(pair.client, &iov, 1), EPIPE);
  REQUIRE(pipe_signals == 3);
}

TEST_CASE("ending: SIGPIPE after the own half close") {
  Pair pair = MakePair();
  PipeSignalCounter counter;
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE_ERRNO(write(pair.client, "x", 1), EPIPE);
  REQUIRE(pipe_signals == 1);
}

TEST_CASE("ending: SIGPIPE kills by default") {
  Pair pair = MakePair();
  const pid_t pid = Child([&] {
    signal(SIGPIPE, SIG_DFL);
    Pair own = MakePair();
    shutdown(own.client, SHUT_WR);
    [[maybe_unused]] const ssize_t n = write(own.client, "x", 1);
    return 0;
  });
  const int status = Reap(pid);
  REQUIRE(status >= 0);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGPIPE);
}

TEST_CASE("ending: linger zero resets the peer", "[abort]") {
  Pair pair = MakePair();
  LingerZero(pair.client);
  pair.client.reset();
  REQUIRE((PollOne(pair.server, POLLIN) & (POLLIN | POLLERR | POLLHUP)) == (POLLIN | POLLERR | POLLHUP));
  char c;
  REQUIRE_ERRNO(recv(pair.server, &c, 1, 0), ECONNRESET);
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
  REQUIRE_ERRNO(send(pair.server, &c, 1, MSG_NOSIGNAL), EPIPE);
}

TEST_CASE("ending: a reset is reported once by SO_ERROR", "[abort]") {
  Pair pair = MakePair();
  LingerZero(pair.client);
  pair.client.reset();
  REQUIRE(WaitFor(pair.server, POLLERR));
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == ECONNRESET);
  REQUIRE(GetOption(pair.server, SOL_SOCKET, SO_ERROR) == 0);
  char c;
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
}

TEST_CASE("ending: a reset ends a blocked receive", "[abort]") {
  Pair pair = MakePair();
  auto blocked = Async([&] {
    char c;
    return recv(pair.server, &c, 1, 0) == -1 ? errno : 0;
  });
  REQUIRE(StillRunning(blocked));
  LingerZero(pair.client);
  pair.client.reset();
  REQUIRE(Get(blocked) == ECONNRESET);
}

TEST_CASE("ending: close with unread data resets the peer", "[abort]") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "never read"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  pair.server.reset();
  REQUIRE(WaitFor(pair.client, POLLERR));
  char c;
  REQUIRE_ERRNO(recv(pair.client, &c, 1, 0), ECONNRESET);
}

TEST_CASE("ending: linger with a time waits for the peer to take the data") {
  Pair pair = MakePair();
  constexpr int kSeconds = 25;
  const linger value{1, kSeconds};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &value, sizeof(value)) == 0);
  linger back{};
  socklen_t length = sizeof(back);
  REQUIRE(getsockopt(pair.client, SOL_SOCKET, SO_LINGER, &back, &length) == 0);
  REQUIRE((back.l_onoff != 0 && back.l_linger == kSeconds));
  const std::string data = Pattern(100'000);
  REQUIRE(SendAll(pair.client, data));
  auto receiver = Async([&] { return ReceiveToEnd(pair.server); });
  Stopwatch watch;
  pair.client.reset();
  REQUIRE(watch.ms() < 1000 * kSeconds / 2);
  REQUIRE(Get(receiver) == data);
}

TEST_CASE("ending: linger with a time waits although the socket does not block") {
  Pair pair = MakePair();
  SetNonblocking(pair.client);
  const size_t sent = Fill(pair.client);
  const linger one{.l_onoff = 1, .l_linger = 1};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &one, sizeof one) == 0);
  const Stopwatch watch;
  pair.client.reset();
  if (watch.ms() >= 900) return;
  REQUIRE(std::getenv("LD_PRELOAD") != nullptr);
  // What keeps data for the peer's program may have found room for all of it meanwhile.
  int taken = 0;
  REQUIRE(ioctl(pair.server, FIONREAD, &taken) == 0);
  REQUIRE(static_cast<size_t>(taken) == sent);
}

TEST_CASE("ending: SO_RCVTIMEO bounds a receive and the socket lives on") {
  Pair pair = MakePair();
  const timeval tv{0, 80'000};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
  timeval back{};
  socklen_t length = sizeof(back);
  REQUIRE(getsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &back, &length) == 0);
  REQUIRE(back.tv_sec == 0);
  REQUIRE(back.tv_usec >= 80'000);
  char room[8];
  Stopwatch watch;
  REQUIRE_ERRNO(recv(pair.server, room, 1, 0), EAGAIN);
  REQUIRE(watch.ms() >= 70);
  REQUIRE(watch.ms() < kAtOnceMs);
  REQUIRE(SendAll(pair.client, "abc"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, room, 8, MSG_WAITALL) == 3);
  REQUIRE_ERRNO(read(pair.server, room, 1), EAGAIN);
  const timeval none{0, 0};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none)) == 0);
  auto blocked = Async([&] { return recv(pair.server, room, 1, 0); });
  REQUIRE(StillRunning(blocked, 150));
  REQUIRE(SendAll(pair.client, "d"));
  REQUIRE(Get(blocked) == 1);
}

TEST_CASE("ending: a time-out below zero is over at once, one that is very long is never") {
  Pair pair = MakePair();
  char c;
  const timeval negative{-1, 0};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &negative, sizeof negative) == 0);
  REQUIRE_ERRNO(recv(pair.server, &c, 1, 0), EAGAIN);
  REQUIRE_ERRNO(recv(pair.server, &c, 1, MSG_PEEK), EAGAIN);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, &c, 1, 0) == 1);
  SetNonblocking(pair.client);
  Fill(pair.client);
  SetNonblocking(pair.client, false);
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_SNDTIMEO, &negative, sizeof negative) == 0);
  const std::string block = Pattern(64 * 1024);
  while (send(pair.client, block.data(), block.size(), 0) > 0) {
  }
  REQUIRE(errno == EAGAIN);
  for (const time_t seconds :
       {std::numeric_limits<time_t>::max(), std::numeric_limits<time_t>::max() / 1000, time_t{1} << 40}) {
    Pair other = MakePair();
    const timeval tv{seconds, 999'999};
    REQUIRE(setsockopt(other.server, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
    auto received = Async([&] { return recv(other.server, &c, 1, 0); });
    REQUIRE(StillRunning(received));
    REQUIRE(SendAll(other.client, "x"));
    REQUIRE(Get(received) == 1);
  }
}

TEST_CASE("ending: SO_SNDTIMEO bounds a send") {
  Pair pair = MakePair();
  const timeval tv{0, 100'000};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) == 0);
  const std::string block = Pattern(256 * 1024);
  size_t total = 0;
  Stopwatch watch;
  ssize_t n;
  while ((n = send(pair.client, block.data(), block.size(), 0)) > 0) {
    total += static_cast<size_t>(n);
    REQUIRE(watch.ms() < kPatienceMs);
  }
  REQUIRE(errno == EAGAIN);
  REQUIRE(watch.ms() >= 90);
  REQUIRE(ReceiveExactly(pair.server, total).size() == total);
  REQUIRE(SendAll(pair.client, "again"));
  REQUIRE(ReceiveExactly(pair.server, 5) == "again");
}

TEST_CASE("ending: a partial blocking send that times out tells how much went") {
  Pair pair = MakePair();
  const timeval tv{0, 100'000};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) == 0);
  const std::string data = Pattern(64 << 20);
  const ssize_t n = send(pair.client, data.data(), data.size(), 0);
  REQUIRE(n > 0);
  REQUIRE(n < static_cast<ssize_t>(data.size()));
  const std::string got = ReceiveExactly(pair.server, static_cast<size_t>(n));
  REQUIRE(Hash(got) == Hash(data.substr(0, static_cast<size_t>(n))));
  char c;
  REQUIRE_ERRNO(recv(pair.server, &c, 1, MSG_DONTWAIT), EAGAIN);
}

int OpenDescriptors() {
  int count = 0;
  DIR* const directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

TEST_CASE("ending: closed connections whose peers stay open hold few descriptors") {
  constexpr int kConnections = 300;
  Listener listener = Listen();
  const rlimit limit{1024, 4096};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  const int before = OpenDescriptors();
  std::vector<Fd> servers;
  for (int i = 0; i < kConnections; ++i) {
    Pair pair = ConnectTo(listener);
    REQUIRE(SendAll(pair.client, "last words"));
    servers.push_back(std::move(pair.server));
  }
  // A peer on a local link holds the memory's descriptor besides. There the closed end holds no descriptor of
  // its connections. The library keeps at most sixteen memories, each with two descriptors.
  const int of_peers = OnLocalLinks() ? 2 * kConnections : kConnections;
  const int of_closed = OnLocalLinks() ? 40 : 150;
  REQUIRE(Eventually([&] { return OpenDescriptors() - before < of_peers + of_closed; }));
  for (Fd& server : servers) {
    REQUIRE(ReceiveToEnd(server) == "last words");
    REQUIRE((PollOne(server, POLLIN | POLLOUT, 0) & POLLERR) == 0);
    REQUIRE(GetOption(server, SOL_SOCKET, SO_ERROR) == 0);
  }
}

TEST_CASE("ending: close delivers everything when no descriptor is left") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  const bool full = GENERATE(false, true);
  Pair pair = MakePair();
  size_t sent = 0;
  if (full) {
    SetNonblocking(pair.client);
    sent = Fill(pair.client);
    SetNonblocking(pair.client, false);
  } else {
    REQUIRE(SendAll(pair.client, Pattern(200'000)));
    sent = 200'000;
  }
  const rlimit limit{256, 4096};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::vector<Fd> fillers;
  do fillers.emplace_back(dup(STDERR_FILENO));
  while (fillers.back() >= 0);
  REQUIRE(errno == EMFILE);
  auto receiver = Async([&] { return ReceiveToEnd(pair.server).size(); });
  pair.client.reset();
  const size_t received = Get(receiver);
  fillers.clear();
  REQUIRE(received == sent);
  REQUIRE((PollOne(pair.server, POLLIN, 0) & POLLERR) == 0);
}

}  // namespace
}  // namespace posix_test
