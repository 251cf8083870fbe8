// A thread sleeps in a large write, its process forks, and somebody else reads: the peer takes nothing before
// all that it says is read. What the write says has left is what arrives.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>

#include "test/posix/processes.h"

namespace posix_test {
namespace {

constexpr size_t kUp = 6'000'000;
constexpr size_t kDown = 14 << 20;  // more than TCP ever buffers

class LargeWrite {
 public:
  LargeWrite(int fd, const std::string& data) {
    sent_ = Async([this, fd, &data] {
      tid_ = gettid();
      return send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    });
  }
  bool FallsAsleep() {
    return Eventually([&] { return tid_ != 0 && IsAsleep(tid_); });
  }
  bool asleep() { return StillRunning(sent_); }
  ssize_t Sent() { return Get(sent_); }

 private:
  std::atomic<pid_t> tid_{0};
  std::future<ssize_t> sent_;
};

// With a poll before each receive, or asleep in the receives.
std::string Read(int fd, size_t size, bool polls) {
  if (polls) return ReceiveExactly(fd, size);
  std::string data(size, '\0');
  size_t got = 0;
  for (ssize_t n; got < size && (n = recv(fd, data.data() + got, size - got, 0)) > 0;)
    got += static_cast<size_t>(n);
  data.resize(got);
  return data;
}

uint64_t Sum(const std::string& data) {
  return std::accumulate(data.begin(), data.end(), uint64_t{0},
                         [](uint64_t sum, char c) { return sum + static_cast<unsigned char>(c); });
}

// It reads nothing before all of `up` is written.
RemoteClient TalksFirst(const std::string& up, const std::string& down) {
  return ServeClient([&](int fd) {
    if (!SendAll(fd, up)) return 1;
    return Hash(ReceiveExactly(fd, down.size())) == Hash(down) ? 0 : 2;
  });
}

// A writer left asleep would keep the whole case from its end.
void RequireDone(pid_t pid, const RemoteClient& remote) {
  const int status = Reap(pid);
  if (!ExitedWith(status, 0)) Kill(remote.pid);
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("fork: a child reads what the peer writes while a thread of its parent sleeps in a large write") {
  const bool at_once = GENERATE(false, true);
  const bool polls = GENERATE(false, true);
  const std::string up = Pattern(kUp, 3), down = Pattern(kDown, 4);
  RemoteClient remote = TalksFirst(up, down);
  LargeWrite write(remote.server, down);
  REQUIRE(write.FallsAsleep());
  if (!at_once) REQUIRE(write.asleep());
  RequireDone(Fork([&] { return Hash(Read(remote.server, up.size(), polls)) == Hash(up) ? 0 : 1; }), remote);
  REQUIRE(write.Sent() == static_cast<ssize_t>(down.size()));
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

TEST_CASE("fork: a child reads while its parent's thread sleeps in a write of more than SO_SNDBUF") {
  const bool at_once = GENERATE(false, true);
  const std::string up = Pattern(kUp, 3), down = Pattern(kDown, 4);
  RemoteClient remote = TalksFirst(up, down);
  const int size = 64 * 1024;
  REQUIRE(setsockopt(remote.server, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
  LargeWrite write(remote.server, down);
  REQUIRE(write.FallsAsleep());
  if (!at_once) REQUIRE(write.asleep());
  RequireDone(Fork([&] { return Hash(Read(remote.server, up.size(), true)) == Hash(up) ? 0 : 1; }), remote);
  REQUIRE(write.Sent() == static_cast<ssize_t>(down.size()));
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

TEST_CASE(
    "fork: children, and a child of each, read in turns while a thread of their parent sleeps in a large "
    "write") {
  constexpr size_t kTurns = 6;
  const std::string up = Pattern(kUp, 3), down = Pattern(kDown, 4);
  RemoteClient remote = TalksFirst(up, down);
  LargeWrite write(remote.server, down);
  REQUIRE(write.FallsAsleep());
  for (size_t i = 0; i < kTurns; i += 2) {
    const auto turn = [&](size_t number) {
      const size_t part = up.size() / kTurns;
      return Read(remote.server, part, number % 2 != 0) == up.substr(number * part, part);
    };
    const pid_t child = Fork([&] {
      if (!turn(i)) return 1;
      return ExitedWith(Reap(Fork([&] { return turn(i + 1) ? 0 : 1; })), 0) ? 0 : 2;
    });
    RequireDone(child, remote);
  }
  REQUIRE(write.Sent() == static_cast<ssize_t>(down.size()));
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

// The peer makes no call while the process forks: until it does it cannot give back what the write has lent.
TEST_CASE("fork: threads of the parent sleep in a large write and in a receive, and a child reads the rest") {
  const std::string up = Pattern(kUp, 3), down = Pattern(kDown, 4);
  Pipe begin;
  RemoteClient remote = ServeClient([&](int fd) {
    if (!begin.Hear() || !SendAll(fd, up)) return 1;
    return Hash(ReceiveExactly(fd, down.size())) == Hash(down) ? 0 : 2;
  });
  LargeWrite write(remote.server, down);
  REQUIRE(write.FallsAsleep());
  std::atomic<pid_t> tid{0};
  auto reader = Async([&] {
    tid = gettid();
    char c = 0;
    return recv(remote.server, &c, 1, 0) == 1 ? int{static_cast<unsigned char>(c)} : -1;
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  Pipe sums;
  const pid_t child = Fork([&] {
    const std::string got = Read(remote.server, up.size() - 1, false);
    if (got.size() != up.size() - 1) return 1;
    const uint64_t sum = Sum(got);
    return ::write(sums.out, &sum, sizeof sum) == sizeof sum ? 0 : 2;
  });
  begin.Tell();
  RequireDone(child, remote);
  // Which byte the thread has had nobody knows.
  uint64_t sum = 0;
  REQUIRE(read(sums.in, &sum, sizeof sum) == sizeof sum);
  const int byte = Get(reader);
  REQUIRE(byte >= 0);
  REQUIRE(sum + static_cast<uint64_t>(byte) == Sum(up));
  REQUIRE(write.Sent() == static_cast<ssize_t>(down.size()));
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

TEST_CASE("fork: the time of a large write runs out, and what it says has left is what arrives") {
  const std::string up = Pattern(kUp, 3), down = Pattern(kDown, 4);
  Pipe sent;
  RemoteClient remote = ServeClient([&](int fd) {
    if (!SendAll(fd, up)) return 1;
    ssize_t count = 0;
    if (read(sent.in, &count, sizeof count) != sizeof count) return 2;
    const std::string got = ReceiveToEnd(fd);
    return static_cast<ssize_t>(got.size()) == count && Hash(got) == Hash(down.substr(0, got.size())) ? 0 : 3;
  });
  SetTimeout(remote.server, SO_SNDTIMEO, 1000);
  LargeWrite write(remote.server, down);
  REQUIRE(write.FallsAsleep());
  const pid_t child = Fork([&] { return Hash(Read(remote.server, up.size(), true)) == Hash(up) ? 0 : 1; });
  const ssize_t count = std::max<ssize_t>(write.Sent(), 0);
  REQUIRE(::write(sent.out, &count, sizeof count) == sizeof count);
  RequireDone(child, remote);
  REQUIRE(shutdown(remote.server, SHUT_WR) == 0);
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

TEST_CASE("fork: again and again beside a thread in a large write, which loses nothing") {
  constexpr int kForks = 10;
  const std::string down = Pattern(kDown, 4);
  Pipe begin;
  RemoteClient remote = ServeClient([&](int fd) {
    if (!begin.Hear()) return 1;
    return Hash(ReceiveExactly(fd, down.size())) == Hash(down) ? 0 : 2;
  });
  LargeWrite write(remote.server, down);
  REQUIRE(write.FallsAsleep());
  for (int i = 0; i < kForks; ++i) {
    if (i == kForks / 2) begin.Tell();
    REQUIRE(ExitedWith(Reap(Fork([] { return 0; })), 0));
  }
  REQUIRE(write.Sent() == static_cast<ssize_t>(down.size()));
  REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

// The peer makes no call that would give back what the writes have lent.
TEST_CASE(
    "fork: a child becomes another program at once, though threads of its parent sleep in large writes") {
  constexpr size_t kConnections = 5;
  const std::string down = Pattern(kDown, 4);
  Pipe begin;
  std::vector<RemoteClient> remotes;
  std::vector<std::unique_ptr<LargeWrite>> writes;
  for (size_t i = 0; i < kConnections; ++i) {
    remotes.push_back(ServeClient([&](int fd) {
      remotes.clear();
      return begin.Hear() && Hash(ReceiveExactly(fd, down.size())) == Hash(down) ? 0 : 1;
    }));
    REQUIRE(fcntl(remotes.back().server, F_SETFD, FD_CLOEXEC) == 0);
  }
  for (RemoteClient& remote : remotes) {
    writes.push_back(std::make_unique<LargeWrite>(remote.server, down));
    REQUIRE(writes.back()->FallsAsleep());
  }
  const Stopwatch watch;
  const pid_t child = Fork([&] {
    execl("/bin/true", "true", nullptr);
    return 1;
  });
  const int status = Reap(child);
  const int taken = watch.ms();
  for (size_t i = 0; i < kConnections; ++i) begin.Tell();
  REQUIRE(taken < kAtOnceMs);
  REQUIRE(ExitedWith(status, 0));
  for (auto& write : writes) REQUIRE(write->Sent() == static_cast<ssize_t>(down.size()));
  for (RemoteClient& remote : remotes) REQUIRE(ExitedWith(Reap(remote.pid), 0));
}

}  // namespace
}  // namespace posix_test
