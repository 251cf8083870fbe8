// Connections that wait for whichever process accepts: put in with their state, taken out once, and counted.
// Another process is here a second queue on duplicates of the descriptors.
#include "preload/socket/common_queue.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>

#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

std::vector<std::byte> State(size_t size, int value) {
  return std::vector<std::byte>(size, std::byte(value));
}

struct Pair {
  Pair() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0); }
  ~Pair() {
    for (const int fd : fds) close(fd);
  }
  int fds[2];
};

// Bytes written to the pair's one end come out of `link`.
bool LeadsTo(const Pair& pair, int link) {
  char c = 0;
  return write(pair.fds[0], "x", 1) == 1 && recv(link, &c, 1, MSG_DONTWAIT) == 1 && c == 'x';
}

constexpr Time kThen{std::chrono::seconds(1)};  // long ago

Address PeerAt(uint16_t port, int family) {
  Address peer;
  peer.storage.sin6_family = static_cast<sa_family_t>(family);
  peer.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  SetPort(peer, port);
  return peer;
}

const Address kPeer = PeerAt(1, AF_INET);

void CopyOf(const CommonQueue& queue, CommonQueue* copy) {
  std::vector<int> fds;
  queue.AppendDescriptors(&fds);
  REQUIRE(copy->TakeUp(dup(fds[0]), dup(fds[1])));
}

TEST_CASE("common queue: what one process puts in, another takes out, in order and once") {
  CommonQueue queue, other;
  REQUIRE_FALSE(queue.usable());
  REQUIRE(queue.Open());
  CopyOf(queue, &other);
  Pair first, second;
  REQUIRE(queue.Put(State(CommonQueue::kMostState, 1), first.fds[1], -1, kPeer, kThen, false));
  REQUIRE(queue.Put(State(0, 2), second.fds[1], -1, kPeer, kThen, false));
  CHECK(other.size() == 2);
  int link = -1;
  int memory = -1;
  std::vector<std::byte> state;
  Time since;
  Address peer;
  REQUIRE(other.Take(SOCK_CLOEXEC | SOCK_NONBLOCK, &link, &memory, &peer, &since, &state));
  CHECK(state == State(CommonQueue::kMostState, 1));
  CHECK(LeadsTo(first, link));
  CHECK(fcntl(link, F_GETFD) == FD_CLOEXEC);
  CHECK((fcntl(link, F_GETFL) & O_NONBLOCK) != 0);
  close(link);
  REQUIRE(queue.Take(0, &link, &memory, &peer, &since, &state));
  CHECK(state.empty());
  CHECK(LeadsTo(second, link));
  CHECK(fcntl(link, F_GETFD) == 0);
  CHECK((fcntl(link, F_GETFL) & O_NONBLOCK) == 0);
  close(link);
  CHECK(queue.size() == 0);
  errno = 0;
  REQUIRE_FALSE(other.Take(0, &link, &memory, &peer, &since, &state));
  CHECK(errno == EAGAIN);
}

TEST_CASE("common queue: it tells since when the first one waits") {
  CommonQueue queue;
  CHECK(queue.FirstSince() == kNever);
  REQUIRE(queue.Open());
  CHECK(queue.FirstSince() == kNever);
  Pair pair;
  const Time later = kThen + std::chrono::nanoseconds(1);
  REQUIRE(queue.Put(State(3, 3), pair.fds[1], -1, kPeer, later, false));
  REQUIRE(queue.Put(State(3, 3), pair.fds[1], -1, kPeer, kThen, false));
  const int next = dup(0);
  close(next);
  int link = -1;
  int memory = -1;
  std::vector<std::byte> state;
  Time since;
  Address peer;
  for (const Time expected : {later, kThen}) {
    CHECK(queue.FirstSince() == expected);
    const int unused = dup(0);  // a look takes no descriptor out
    close(unused);
    CHECK(unused == next);
    REQUIRE(queue.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state));
    CHECK(since == expected);
    CHECK(LeadsTo(pair, link));
    close(link);
  }
  CHECK(queue.FirstSince() == kNever);
  // Another process's clock is not believed to be ahead of this one's, nor to have run before it.
  for (const Time lie : {kNever, Time::min()}) {
    REQUIRE(queue.Put(State(3, 3), pair.fds[1], -1, kPeer, lie, false));
    REQUIRE(queue.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state));
    CHECK(since >= Time{});
    CHECK(since <= Now());
    close(link);
  }
}

TEST_CASE("common queue: the peer's address comes along") {
  CommonQueue queue;
  REQUIRE(queue.Open());
  Pair pair;
  for (const Address& put : {PeerAt(1, AF_INET), PeerAt(2, AF_INET6), Address{}}) {
    REQUIRE(queue.Put(State(3, 3), pair.fds[1], -1, put, kThen, false));
    int link = -1;
    int memory = -1;
    std::vector<std::byte> state;
    Time since;
    Address peer;
    REQUIRE(queue.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state));
    CHECK(state == State(3, 3));
    CHECK(peer.length == put.length);
    CHECK(std::memcmp(&peer.storage, &put.storage, put.length) == 0);
    close(link);
  }
}

TEST_CASE("common queue: what is too long or too much stays with the caller") {
  CommonQueue queue;
  Pair pair;
  REQUIRE_FALSE(queue.Put(State(10, 1), pair.fds[1], -1, kPeer, kThen, false));
  REQUIRE(queue.Open());
  errno = 0;
  REQUIRE_FALSE(queue.Put(State(CommonQueue::kMostState + 1, 1), pair.fds[1], -1, kPeer, kThen, false));
  CHECK(errno == EMSGSIZE);
  REQUIRE_FALSE(queue.Put(State(10, 1), -1, -1, kPeer, kThen, false));
  size_t count = 0;
  while (count < 100'000 && queue.Put(State(10, 1), pair.fds[1], -1, kPeer, kThen, false)) ++count;
  CHECK(errno != EMSGSIZE);
  CHECK(count >= 64);
  CHECK(count < 100'000);
  CHECK(queue.size() == count);
}

TEST_CASE("common queue: without a descriptor left, the connection waits on") {
  CommonQueue queue;
  REQUIRE(queue.Open());
  Pair pair;
  REQUIRE(queue.Put(State(3, 3), pair.fds[1], pair.fds[1], kPeer, kThen, false));
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  int link = -1;
  int memory = -1;
  std::vector<std::byte> state;
  Time since;
  Address peer;
  const int free = dup(0);
  close(free);
  // The link, the memory, and the memory's new number before the old one is closed.
  for (const int numbers : {0, 1, 2, 3}) {
    const rlimit few{.rlim_cur = static_cast<rlim_t>(free + numbers), .rlim_max = limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    errno = 0;
    const bool taken = queue.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state);
    const int error = errno;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(taken == (numbers == 3));
    if (taken) continue;
    CHECK(error == EMFILE);
    CHECK(queue.size() == 1);
  }
  CHECK(memory >= 0);
  CHECK(LeadsTo(pair, link));
  close(link);
  close(memory);
}

TEST_CASE("common queue: the process that put a connection in may be gone") {
  CommonQueue left;
  Pair pair;
  {
    CommonQueue gone;
    REQUIRE(gone.Open());
    CopyOf(gone, &left);
    REQUIRE(gone.Put(State(3, 3), pair.fds[1], -1, kPeer, kThen, false));
  }
  int link = -1;
  int memory = -1;
  std::vector<std::byte> state;
  Time since;
  Address peer;
  REQUIRE(left.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state));
  CHECK(LeadsTo(pair, link));
  close(link);
}

TEST_CASE("common queue: the last process ends what waits") {
  Pair pair;
  {
    CommonQueue queue;
    REQUIRE(queue.Open());
    REQUIRE(queue.Put(State(3, 3), pair.fds[1], -1, kPeer, kThen, false));
    close(std::exchange(pair.fds[1], -1));
  }
  char c;
  CHECK(recv(pair.fds[0], &c, 1, MSG_DONTWAIT) == 0);
}

TEST_CASE("common queue: barred by one process, it takes nothing in from any") {
  CommonQueue queue, other;
  REQUIRE(queue.Open());
  CopyOf(queue, &other);
  Pair pair;
  REQUIRE(other.Put(State(3, 3), pair.fds[1], -1, kPeer, kThen, false));
  queue.Bar();
  CHECK_FALSE(other.usable());
  CHECK_FALSE(other.Put(State(3, 3), pair.fds[1], -1, kPeer, kThen, false));
  int link = -1;
  int memory = -1;
  std::vector<std::byte> state;
  Time since;
  Address peer;
  REQUIRE(other.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state));
  close(link);
}

// In another process, which says what it has done before it goes on.
class Worker {
 public:
  explicit Worker(CommonQueue& queue) : queue_(queue) {
    REQUIRE(pipe2(told_, O_CLOEXEC) == 0);
    REQUIRE(pipe2(asked_, O_CLOEXEC) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) Serve();
  }
  ~Worker() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    for (const int fd : {told_[0], told_[1], asked_[0], asked_[1]}) close(fd);
  }
  // 'b': BeginWork; 'e': EndWork; 'p': Put what was begun.
  bool Does(char what) {
    char done = 0;
    REQUIRE(write(asked_[1], &what, 1) == 1);
    REQUIRE(read(told_[0], &done, 1) == 1);
    return done == 1;
  }
  void Die() {
    kill(pid_, SIGKILL);
    siginfo_t info;
    REQUIRE(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) == 0);
  }

 private:
  [[noreturn]] void Serve() {
    queue_.ForgetWork();
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) _exit(1);
    for (char what; read(asked_[0], &what, 1) == 1;) {
      char done = 1;
      if (what == 'b') done = queue_.BeginWork();
      if (what == 'e') queue_.EndWork();
      if (what == 'p') done = queue_.Put(State(3, 3), fds[1], -1, kPeer, kThen, true);
      if (write(told_[1], &done, 1) != 1) break;
    }
    _exit(0);
  }

  CommonQueue& queue_;
  int told_[2], asked_[2];
  pid_t pid_;
};

TEST_CASE("common queue: who bars it knows of what others have begun, and gets that") {
  CommonQueue queue;
  REQUIRE(queue.Open());
  Worker worker(queue);
  CHECK_FALSE(queue.OthersAtWork());
  REQUIRE(worker.Does('b'));
  CHECK(queue.OthersAtWork());
  SECTION("put in although it is barred, and ended") {
    queue.Bar();
    CHECK_FALSE(worker.Does('b'));
    CHECK_FALSE(queue.Put(State(3, 3), 0, -1, kPeer, kThen, false));
    CHECK(queue.OthersAtWork());
    CHECK(worker.Does('p'));
    worker.Does('e');
    CHECK_FALSE(queue.OthersAtWork());
    CHECK(queue.size() == 1);
    CHECK_FALSE(worker.Does('p'));
    CHECK_FALSE(worker.Does('b'));
    CHECK_FALSE(queue.OthersAtWork());
  }
  SECTION("its process died") {
    worker.Die();
    CHECK_FALSE(queue.OthersAtWork());
  }
  SECTION("a process's own work is not others'") {
    worker.Does('e');
    REQUIRE(queue.BeginWork());
    CHECK_FALSE(queue.OthersAtWork());
    Worker child(queue);
    queue.Bar();
    CHECK_FALSE(child.Does('p'));
    queue.EndWork();
  }
}

TEST_CASE("common queue: what is no record is refused, and its descriptor closed") {
  CommonQueue queue;
  REQUIRE(queue.Open());
  std::vector<int> fds;
  queue.AppendDescriptors(&fds);
  Pair pair;
  REQUIRE(queue.Put(State(3, 3), pair.fds[1], -1, kPeer, kThen, false));
  int size = 0;
  REQUIRE(ioctl(fds[0], FIONREAD, &size) == 0);
  int link = -1;
  int memory = -1;
  std::vector<std::byte> state;
  Time since;
  Address peer;
  REQUIRE(queue.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state));
  close(link);
  std::vector<std::byte> wrong(static_cast<size_t>(size), std::byte{0xff});
  REQUIRE(write(fds[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size()));
  errno = 0;
  CHECK_FALSE(queue.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state));
  CHECK(errno == ECONNABORTED);
  REQUIRE(queue.Put(State(3, 3), pair.fds[1], -1, kPeer, kThen, false));
  REQUIRE(queue.Take(SOCK_CLOEXEC, &link, &memory, &peer, &since, &state));
  close(link);
}

}  // namespace
}  // namespace sdp::preload
