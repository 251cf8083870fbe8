// Descriptors that get another connection while other threads use them, processes that share a port, and the
// sockets beneath.
#include <dirent.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <random>
#include <set>

#include "test/posix/twins.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

std::vector<int> OpenNumbers() {
  std::vector<int> numbers;
  DIR* const directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(directory))
      numbers.push_back(atoi(entry->d_name));
  }
  closedir(directory);
  return numbers;
}

TEST_CASE("race: numbers get other connections while threads use them in every way") {
  constexpr int kFirst = 100, kNumbers = 8;
  signal(SIGPIPE, SIG_IGN);
  Listener listener = Listen();
  const auto replace = [&](int client, int server) {
    Pair pair = ConnectTo(listener);
    for (const auto& [from, to] :
         {std::pair(pair.client.get(), client), std::pair(pair.server.get(), server)}) {
      // Before others can sleep on it.
      SetTimeout(from, SO_RCVTIMEO, 3);
      SetTimeout(from, SO_SNDTIMEO, 3);
      if (dup2(from, to) != to) return false;
    }
    return true;
  };
  for (int i = 0; i < kNumbers; i += 2) REQUIRE(replace(kFirst + i, kFirst + i + 1));
  const size_t before = OpenNumbers().size();
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0};
  const auto use = [&](unsigned seed) {
    std::mt19937 random(seed);
    Fd ep(epoll_create1(EPOLL_CLOEXEC));
    std::string room(3000, 'r');
    while (!stop) {
      const int fd = kFirst + static_cast<int>(random() % kNumbers);
      const size_t size = 1 + random() % room.size();
      epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.fd = fd}};
      pollfd two[2] = {{fd, POLLIN | POLLOUT, 0}, {kFirst, POLLIN, 0}};
      switch (random() % 12) {
        case 0:
        case 1:
          send(fd, room.data(), size, MSG_DONTWAIT);
          break;
        case 2:
        case 3:
          recv(fd, room.data(), size, MSG_DONTWAIT);
          break;
        case 4:
          recv(fd, room.data(), size, 0);
          break;
        case 5:
          send(fd, room.data(), size, 0);
          break;
        case 6:
          poll(two, 2, static_cast<int>(random() % 3));
          break;
        case 7:
          epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event);
          epoll_wait(ep, &event, 1, 1);
          break;
        case 8:
          epoll_ctl(ep, EPOLL_CTL_DEL, fd, &event);
          break;
        case 9:
          if (random() % 8 == 0) shutdown(fd, static_cast<int>(random() % 3));
          break;
        case 10: {
          int value = 0;
          socklen_t length = sizeof value;
          getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length);
          break;
        }
        default:
          Fd copy(dup(fd));
          send(copy, room.data(), 10, MSG_DONTWAIT);
          break;
      }
      ++calls;
    }
    return true;
  };
  std::vector<std::future<bool>> users;
  for (unsigned i = 1; i <= 4; ++i) users.push_back(Async([&, i] { return use(i); }));
  std::mt19937 random(7);
  const Stopwatch watch;
  int replaced = 0;
  while (watch.ms() < 1500 || ((replaced <= 20 || calls <= 200) && watch.ms() < kPatienceMs)) {
    const int pair = kFirst + 2 * static_cast<int>(random() % (kNumbers / 2));
    REQUIRE(replace(pair, pair + 1));
    ++replaced;
  }
  stop = true;
  for (auto& user : users) REQUIRE(Get(user));
  REQUIRE(replaced > 20);
  REQUIRE(calls > 200);
  // Nobody's bytes are wrong, and nothing has stayed open.
  REQUIRE(replace(kFirst, kFirst + 1));
  REQUIRE(SendAll(kFirst, "sound"));
  REQUIRE(ReceiveExactly(kFirst + 1, 5) == "sound");
  REQUIRE(Eventually([&] { return OpenNumbers().size() <= before + 12; }));
}

// TCP as well: a client may be told of the killed one before the port mapper has heard.
TEST_CASE("race: SO_REUSEPORT listeners of several processes, of which one is killed", "[mixed]") {
  Address address = Loopback(AF_INET);
  int names[2];
  REQUIRE(pipe(names) == 0);
  Fd keeper = TcpSocket();  // has the port, and does not listen
  SetOption(keeper, SOL_SOCKET, SO_REUSEPORT, 1);
  REQUIRE(bind(keeper, address.get(), address.length) == 0);
  address = LocalOf(keeper);
  const auto worker = [&](char name) {
    return Child([&, name] {
      Fd fd = TcpSocket();
      SetOption(fd, SOL_SOCKET, SO_REUSEPORT, 1);
      if (bind(fd, address.get(), address.length) != 0 || listen(fd, 64) != 0) return 1;
      if (write(names[1], &name, 1) != 1) return 2;
      for (;;) {
        Fd client(accept(fd, nullptr, nullptr));
        if (client < 0 || send(client, &name, 1, MSG_NOSIGNAL) != 1) return 3;
        char c;
        recv(client, &c, 1, 0);
      }
    });
  };
  const pid_t first = worker('a'), second = worker('b');
  char ready[2];
  for (char& c : ready) REQUIRE(read(names[0], &c, 1) == 1);
  std::set<std::string> served;
  const auto ask = [&] {
    Fd client = TcpSocket();
    SetTimeout(client, SO_RCVTIMEO, kPatienceMs);
    REQUIRE(connect(client, address.get(), address.length) == 0);
    return ReceiveExactly(client, 1);
  };
  for (int i = 0; i < 40; ++i) served.insert(ask());
  REQUIRE(served == std::set<std::string>{"a", "b"});
  REQUIRE(kill(first, SIGKILL) == 0);
  Reap(first);
  for (int i = 0; i < 20; ++i) REQUIRE(ask() == "b");
  REQUIRE(kill(second, SIGKILL) == 0);
  Reap(second);
  close(names[0]);
  close(names[1]);
}

TEST_CASE("race: a mark and a device are those of every socket beneath") {
  Listener listener = Listen();
  Fd client = TcpSocket();
  const int mark = 4711;
  const char device[] = "lo";
  if (setsockopt(client, SOL_SOCKET, SO_MARK, &mark, sizeof mark) != 0 ||
      setsockopt(client, SOL_SOCKET, SO_BINDTODEVICE, device, sizeof device) != 0)
    return sdp::test::Skipped(std::string("SO_MARK, SO_BINDTODEVICE: ") + strerror(errno));
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(SendAll(client, "x"));
  REQUIRE(ReceiveExactly(server, 1) == "x");
  // As the kernel alone sees them, by bare calls: of the sockets that are connected, those of the client's
  // own side.
  int marked = 0;
  for (const int fd : OpenNumbers()) {
    int value = 0;
    socklen_t length = sizeof value;
    if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PROTOCOL, &value, &length) != 0 || value != IPPROTO_TCP)
      continue;
    length = sizeof value;
    if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) != 0 || value != 0) continue;
    int seen = 0;
    length = sizeof seen;
    REQUIRE(syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_MARK, &seen, &length) == 0);
    char name[16] = {};
    length = sizeof name;
    REQUIRE(syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length) == 0);
    REQUIRE((seen == mark) == (std::string(name) == "lo"));
    marked += seen == mark;
  }
  REQUIRE(marked == 1);
}

TEST_CASE("race: _Fork, which runs nobody's hooks") {
  Pair pair = MakePair();
  const pid_t pid = _Fork();
  if (pid == 0) {
    pair.client.reset();
    const std::string got = ReceiveExactly(pair.server, 5);
    const bool answered = got == "hello" && SendAll(pair.server, "child");
    _exit(answered ? 0 : 1);
  }
  REQUIRE(pid > 0);
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "hello"));
  REQUIRE(ReceiveExactly(pair.client, 5) == "child");
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(ReceiveToEnd(pair.client).empty());
}

TEST_CASE("race: a setuid program gets the connection by exec") {
  if (geteuid() != 0) return sdp::test::Skipped("only root makes a program another user's");
  char path[] = "/tmp/posix-setuid-XXXXXX";
  {
    Fd file(mkstemp(path));
    Fd program(open("/bin/cat", O_RDONLY));
    char room[65536];
    ssize_t n;
    while ((n = read(program, room, sizeof room)) > 0)
      REQUIRE(write(file, room, static_cast<size_t>(n)) == n);
    REQUIRE(fchown(file, 65534, 65534) == 0);
    REQUIRE(fchmod(file, 04755) == 0);
  }
  Pair pair = MakePair();
  const pid_t pid = Child([&] {
    pair.client.reset();
    dup2(pair.server, 0);
    dup2(pair.server, 1);
    pair.server.reset();
    execl(path, "cat", nullptr);
    return 9;
  });
  pair.server.reset();
  const std::string data = Pattern(300'000);
  auto sender = Async([&] { return SendAll(pair.client, data) && shutdown(pair.client, SHUT_WR) == 0; });
  const std::string got = ReceiveToEnd(pair.client);
  unlink(path);
  REQUIRE(Get(sender));
  REQUIRE(Hash(got) == Hash(data));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test
