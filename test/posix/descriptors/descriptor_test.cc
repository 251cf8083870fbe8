// Descriptor numbers: close, dup and their kin, ranges, the lowest free number.
#include <dirent.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <set>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"

namespace posix_test {
namespace {

TEST_CASE("descriptors: the lowest free number is taken") {
  // What the test program has open from 3 on does not matter; from here on numbers are dense.
  std::vector<Fd> fillers;
  for (int i = 0; i < 20; ++i) fillers.emplace_back(open("/dev/null", O_RDONLY));
  const int lowest = fillers[5];
  const int second = fillers[9];
  fillers[5].reset();
  fillers[9].reset();
  Fd a = TcpSocket();
  REQUIRE(a == lowest);
  Fd b = TcpSocket();
  REQUIRE(b == second);
  a.reset();
  REQUIRE(bind(b, Loopback(AF_INET).get(), sizeof(sockaddr_in)) == 0);
  REQUIRE(listen(b, 8) == 0);
  Fd c = TcpSocket();
  REQUIRE(c == lowest);
  Address address = LocalOf(b);
  REQUIRE(connect(c, address.get(), address.length) == 0);
  const int free_one = dup(STDERR_FILENO);
  REQUIRE(close(free_one) == 0);
  REQUIRE(WaitFor(b, POLLIN));
  Fd d(accept(b, nullptr, nullptr));
  REQUIRE(d == free_one);
  Fd e(dup(d));
  REQUIRE(e > d);
  d.reset();
  Fd f(open("/dev/null", O_RDONLY));
  REQUIRE(f == free_one);
  REQUIRE(SendAll(c, "dense"));
  REQUIRE(ReceiveExactly(e, 5) == "dense");
}

TEST_CASE("descriptors: every number in use is a socket to fstat and proc") {
  Pair pair = MakePair();
  for (const int fd : {pair.client.get(), pair.server.get()}) {
    struct stat st;
    REQUIRE(fstat(fd, &st) == 0);
    REQUIRE(S_ISSOCK(st.st_mode));
    char link[64] = {};
    REQUIRE(readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), link, sizeof(link) - 1) > 0);
    REQUIRE(std::string(link).substr(0, 8) == "socket:[");
  }
}

TEST_CASE("descriptors: a duplicate is the same connection until the last is closed") {
  Pair pair = MakePair();
  Fd copy(dup(pair.server));
  Fd high(fcntl(pair.server, F_DUPFD_CLOEXEC, 200));
  REQUIRE(high >= 200);
  REQUIRE(SendAll(pair.client, "abc"));
  REQUIRE(ReceiveExactly(copy, 1) == "a");
  REQUIRE(ReceiveExactly(high, 1) == "b");
  REQUIRE(ReceiveExactly(pair.server, 1) == "c");
  pair.server.reset();
  REQUIRE(SendAll(copy, "still"));
  REQUIRE(ReceiveExactly(pair.client, 5) == "still");
  copy.reset();
  REQUIRE(PollOne(pair.client, POLLIN, kQuietMs) == 0);
  REQUIRE(SendAll(high, "open"));
  REQUIRE(ReceiveExactly(pair.client, 4) == "open");
  high.reset();
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("descriptors: shutdown acts on all duplicates") {
  Pair pair = MakePair();
  Fd copy(dup(pair.server));
  REQUIRE(shutdown(copy, SHUT_WR) == 0);
  REQUIRE_ERRNO(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("descriptors: dup2 over a socket closes it") {
  Pair one = MakePair(), two = MakePair();
  REQUIRE(dup2(two.server, one.server) == one.server);
  REQUIRE(ReceiveToEnd(one.client).empty());
  REQUIRE(SendAll(two.client, "two"));
  REQUIRE(ReceiveExactly(one.server, 3) == "two");
  two.server.reset();
  REQUIRE(SendAll(one.server, "back"));
  REQUIRE(ReceiveExactly(two.client, 4) == "back");
}

TEST_CASE("descriptors: dup2 of something else over a socket and of a socket over something else") {
  Pair pair = MakePair();
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  Fd in(fds[0]), out(fds[1]);
  REQUIRE(dup2(out, pair.server) == pair.server);
  REQUIRE(ReceiveToEnd(pair.client).empty());
  REQUIRE(write(pair.server, "pipe", 4) == 4);
  char room[8];
  REQUIRE(read(in, room, sizeof(room)) == 4);
  REQUIRE_ERRNO(send(pair.server, "x", 1, 0), ENOTSOCK);
  Pair second = MakePair();
  REQUIRE(dup2(second.server, out) == out);
  REQUIRE(write(out, "socket", 6) == 6);
  REQUIRE(ReceiveExactly(second.client, 6) == "socket");
}

TEST_CASE("descriptors: dup2 and dup3 on themselves and with flags") {
  Pair pair = MakePair();
  REQUIRE(dup2(pair.server, pair.server) == pair.server);
  REQUIRE_ERRNO(dup3(pair.server, pair.server, 0), EINVAL);
  REQUIRE_ERRNO(dup2(100000, pair.server), EBADF);
  REQUIRE_ERRNO(dup3(pair.server, 300, 12345), EINVAL);
  Fd copy(dup3(pair.server, 300, O_CLOEXEC));
  REQUIRE(copy == 300);
  REQUIRE((fcntl(copy, F_GETFD) & FD_CLOEXEC) != 0);
  REQUIRE(SendAll(copy, "x"));
  REQUIRE(ReceiveExactly(pair.client, 1) == "x");
}

TEST_CASE("descriptors: a socket as standard input and output") {
  Pair pair = MakePair();
  Fd saved_in(dup(0)), saved_out(dup(1));
  REQUIRE(dup2(pair.server, 0) == 0);
  REQUIRE(dup2(pair.server, 1) == 1);
  const bool sent = SendAll(pair.client, "in");
  char room[4];
  const ssize_t got = read(0, room, sizeof(room));
  const ssize_t put = write(1, "out", 3);
  dup2(saved_in, 0);
  dup2(saved_out, 1);
  REQUIRE(sent);
  REQUIRE(got == 2);
  REQUIRE(put == 3);
  REQUIRE(ReceiveExactly(pair.client, 3) == "out");
}

TEST_CASE("descriptors: a duplicated listener goes on accepting") {
  Listener listener = Listen();
  Fd copy(dup(listener.fd));
  listener.fd.reset();
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(WaitFor(copy, POLLIN));
  Fd server(accept(copy, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(SendAll(server, "dup"));
  REQUIRE(ReceiveExactly(client, 3) == "dup");
}

TEST_CASE("descriptors: close_range closes sockets") {
  Pair pair = MakePair();
  Fd high_server(fcntl(pair.server, F_DUPFD, 500)), high_client(fcntl(pair.client, F_DUPFD, 500));
  Pair other = MakePair();
  Fd high_other(fcntl(other.server, F_DUPFD, 600));
  other.server.reset();
  REQUIRE(close_range(600, 650, 0) == 0);
  high_other.release();
  REQUIRE(ReceiveToEnd(other.client).empty());
  REQUIRE(SendAll(high_client, "x"));
  REQUIRE(ReceiveExactly(high_server, 1) == "x");
  REQUIRE_ERRNO(close_range(10, 5, 0), EINVAL);
}

TEST_CASE("descriptors: a daemon that closes all numbers works on") {
  const pid_t pid = Child([] {
    close_range(3, ~0u, 0);
    Pair pair = MakePair();
    if (!SendAll(pair.client, "after")) return 1;
    if (ReceiveExactly(pair.server, 5) != "after") return 2;
    closefrom(3);
    pair.client.release();
    pair.server.release();
    Pair next = MakePair();
    if (!SendAll(next.client, Pattern(100'000))) return 3;
    return ReceiveExactly(next.server, 100'000) == Pattern(100'000) ? 0 : 4;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("descriptors: a daemon that closes each number in turn works on") {
  const pid_t pid = Child([] {
    for (int fd = 3; fd < 5000; ++fd) close(fd);
    for (int round = 0; round < 2; ++round) {
      Pair pair = MakePair();
      pair.client.release();
      pair.server.release();
      for (int fd = 3; fd < 70000; ++fd) close(fd);
    }
    Pair pair = MakePair();
    if (!SendAll(pair.client, "after")) return 1;
    return ReceiveExactly(pair.server, 5) == "after" ? 0 : 2;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// Without blocking; false if that is not done in time.
bool ConnectAndGreet(Address target) {
  const Fd fd = TcpSocket(AF_INET, SOCK_NONBLOCK);
  if (connect(fd, target.get(), target.length) != 0 && errno != EINPROGRESS) return false;
  const Fd ep(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLOUT, .data = {}};
  if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) != 0) return false;
  return epoll_wait(ep, &event, 1, kPatienceMs) == 1 && event.events == EPOLLOUT && SendAll(fd, "there");
}

TEST_CASE("descriptors: a program that uses every number there is goes on connecting, and takes what comes") {
  constexpr int kRounds = 3;
  Listener listener = Listen();
  Pipe there, go;
  const pid_t pid = Fork([&] {
    const Fd quiet = Connected(listener);
    if (!ConnectAndGreet(listener.address)) return 1;
    const Pipe mine;
    // Until whatever works behind the program's back has nothing to do.
    if (PollOne(mine.in, POLLIN, 2000) != 0) return 2;
    std::vector<int> others;
    DIR* const numbers = opendir("/proc/self/fd");
    if (numbers == nullptr) return 3;
    while (const dirent* const entry = readdir(numbers)) {
      if (const int number = atoi(entry->d_name); number >= 100) others.push_back(number);
    }
    closedir(numbers);
    for (const int number : others) (void)dup2(mine.in, number);  // or it may not have that one
    there.Tell();
    if (!go.Hear()) return 4;
    for (int round = 0; round < kRounds; ++round) {
      if (!ConnectAndGreet(listener.address)) return 10 + round;
    }
    return 0;
  });
  const Fd quiet(accept(listener.fd, nullptr, nullptr));
  const auto be_greeted = [&] {
    REQUIRE(WaitFor(listener.fd, POLLIN, 2 * kPatienceMs));
    const Fd server(accept(listener.fd, nullptr, nullptr));
    REQUIRE(ReceiveExactly(server, 5) == "there");
  };
  be_greeted();
  REQUIRE(there.Hear());
  for (int piece = 0; piece < 300; ++piece) REQUIRE(SendAll(quiet, "a piece"));
  REQUIRE(Eventually([&] {
    int unsent = -1;
    return ioctl(quiet, SIOCOUTQ, &unsent) == 0 && unsent == 0;
  }));
  go.Tell();
  for (int round = 0; round < kRounds; ++round) be_greeted();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("descriptors: closed numbers are EBADF and stay so") {
  Pair pair = MakePair();
  const int number = pair.server;
  pair.server.reset();
  char c;
  REQUIRE_ERRNO(recv(number, &c, 1, 0), EBADF);
  REQUIRE_ERRNO(send(number, &c, 1, 0), EBADF);
  REQUIRE_ERRNO(close(number), EBADF);
  REQUIRE_ERRNO(fcntl(number, F_GETFL), EBADF);
  REQUIRE(PollOne(number, POLLIN, 0) == POLLNVAL);
}

TEST_CASE("descriptors: a number reused for a file is a file") {
  Pair pair = MakePair();
  const int number = pair.server;
  pair.server.reset();
  Fd file;
  std::vector<Fd> fillers;
  do {
    fillers.emplace_back(open("/dev/zero", O_RDONLY));
  } while (fillers.back() != number && fillers.size() < 100);
  REQUIRE(fillers.back() == number);
  char room[4] = {1, 1, 1, 1};
  REQUIRE(read(number, room, sizeof(room)) == 4);
  REQUIRE(room[0] == 0);
  REQUIRE_ERRNO(send(number, room, 1, 0), ENOTSOCK);
}

TEST_CASE("descriptors: EMFILE in accept and socket leaves the rest alone") {
  if (kUnderUbsan) return Impossible(why::kPipe);
  const pid_t pid = Child([] {
    Listener listener = Listen(AF_INET, 8, SOCK_NONBLOCK);
    Fd client = TcpSocket();
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 1;
    if (!WaitFor(listener.fd, POLLIN)) return 2;
    std::vector<Fd> fillers;
    for (;;) {
      Fd filler(open("/dev/null", O_RDONLY));
      if (filler < 0) break;
      fillers.push_back(std::move(filler));
    }
    if (errno != EMFILE) return 3;
    if (accept(listener.fd, nullptr, nullptr) != -1 || errno != EMFILE) return 4;
    if (socket(AF_INET, SOCK_STREAM, 0) != -1 || errno != EMFILE) return 5;
    fillers.resize(fillers.size() - 2);
    if (!WaitFor(listener.fd, POLLIN)) return 6;
    Fd server;
    if (!Eventually([&] {
          server.reset(accept(listener.fd, nullptr, nullptr));
          return server >= 0;
        }))
      return 7;
    if (!SendAll(client, "room")) return 8;
    return ReceiveExactly(server, 4) == "room" ? 0 : 9;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// As stdio, or a language's run time with system calls of its own, closes.
void CloseBehindTheBack(int fd) { REQUIRE(syscall(SYS_close_range, fd, fd, 0) == 0); }

// libuv's way.
TEST_CASE("descriptors: what syscall() closes ends as what close does") {
  const bool shared = GENERATE(false, true);
  Pair pair = MakePair();
  const Fd kept(epoll_create1(0));
  epoll_event event{EPOLLIN, {}};
  REQUIRE(epoll_ctl(kept, EPOLL_CTL_ADD, pair.client, &event) == 0);
  pid_t child = -1;
  Pipe go;
  if (shared) {
    child = Fork([&] {
      pair.server.reset();
      return go.Hear() && SendAll(pair.client, "child") ? 0 : 1;
    });
  }
  REQUIRE(SendAll(pair.client, "last words"));
  const int number = pair.client.release();
  REQUIRE(syscall(SYS_close, number) == 0);
  REQUIRE(fcntl(number, F_GETFD) == -1);
  REQUIRE_ERRNO(syscall(SYS_close, number), EBADF);
  REQUIRE_ERRNO(syscall(SYS_close, -1), EBADF);
  REQUIRE(ReceiveExactly(pair.server, 10) == "last words");
  if (shared) {
    REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
    go.Tell();
    REQUIRE(ReceiveExactly(pair.server, 5) == "child");
    REQUIRE(ExitedWith(Reap(child), 0));
  }
  char c;
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
  Fd next = TcpSocket();
  REQUIRE(next == number);
  Fd file(open("/dev/null", O_RDWR));
  REQUIRE(syscall(SYS_close, file.release()) == 0);
}

TEST_CASE("descriptors: a number closed behind the C library's back serves its next owner") {
  Pair pair = MakePair();
  Fd ep(epoll_create1(0));
  epoll_event event{EPOLLIN, {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.client, &event) == 0);
  const bool had_unread = GENERATE(false, true);
  if (had_unread) REQUIRE(SendAll(pair.server, "never read"));
  const int number = pair.client.release();
  CloseBehindTheBack(number);
  Listener listener = Listen();  // takes the number, or the next client does
  Pair next = ConnectTo(listener);
  REQUIRE((listener.fd == number || next.client == number || next.server == number));
  char c;
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, &c, 1, 0) <= 0);
  REQUIRE(SendAll(next.client, "next"));
  REQUIRE(ReceiveExactly(next.server, 4) == "next");
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, number, &event) == 0);
}

TEST_CASE("descriptors: a listener closed behind the C library's back listens no more", "[refused]") {
  Listener listener = Listen();
  const int number = listener.fd.release();
  CloseBehindTheBack(number);
  Fd next = TcpSocket();
  REQUIRE(next == number);
  Fd client = TcpSocket();
  REQUIRE_ERRNO(connect(client, listener.address.get(), listener.address.length), ECONNREFUSED);
}

TEST_CASE("descriptors: accept may give out a number that was closed behind the C library's back") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  Fd ep(epoll_create1(0));
  epoll_event event{EPOLLIN, {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.client, &event) == 0);
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  const int number = pair.client.release();
  CloseBehindTheBack(number);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server == number);
  char c;
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(recv(pair.server, &c, 1, 0) <= 0);
  REQUIRE(SendAll(client, "next"));
  // No business of the epoll that knew the number's former owner.
  REQUIRE(epoll_wait(ep, &event, 1, kQuietMs) == 0);
  REQUIRE(ReceiveExactly(server, 4) == "next");
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, server, &event) == 0);
}

TEST_CASE("descriptors: close_range over connections and listeners ends them", "[refused]") {
  Listener listener = Listen();
  const Address address = listener.address;
  Pair pair = ConnectTo(listener);
  // Moved up together, so that the range holds nothing else.
  const int base = 400;
  REQUIRE(dup2(listener.fd, base) == base);
  REQUIRE(dup2(pair.client, base + 1) == base + 1);
  listener.fd.reset();
  pair.client.reset();
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE(close_range(base, base + 10, 0) == 0);
  REQUIRE(ReceiveToEnd(pair.server).empty());
  Fd again = TcpSocket();
  Address target = address;
  REQUIRE_ERRNO(connect(again, target.get(), target.length), ECONNREFUSED);
}

}  // namespace
}  // namespace posix_test
