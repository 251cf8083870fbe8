// What few programs do with a stream.
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <termios.h>

#include <array>
#include <atomic>

#include "test/posix/twins.h"

namespace posix_test {
namespace {

TEST_CASE("seldom: a peek that waits for all of it, and one whose time runs out") {
  Pair pair = MakePair();
  char room[16] = {};
  REQUIRE(SendAll(pair.client, "abc"));
  auto waiting = Async([&] { return recv(pair.server, room, 6, MSG_PEEK | MSG_WAITALL); });
  REQUIRE(StillRunning(waiting));
  REQUIRE(SendAll(pair.client, "defghi"));
  REQUIRE(Get(waiting) == 6);
  REQUIRE(std::string(room, 6) == "abcdef");
  SetTimeout(pair.server, SO_RCVTIMEO, 80);
  const Stopwatch watch;
  REQUIRE(recv(pair.server, room, 12, MSG_PEEK | MSG_WAITALL) == 9);
  REQUIRE(watch.ms() >= 70);
  REQUIRE(recv(pair.server, room, 12, MSG_WAITALL) == 9);
  REQUIRE(std::string(room, 9) == "abcdefghi");
  REQUIRE_ERRNO(recv(pair.server, room, 12, MSG_PEEK | MSG_WAITALL), EAGAIN);
}

TEST_CASE("seldom: as many pieces as there may be, and one more") {
  Pair pair = MakePair();
  std::string data = Pattern(1024 * 3);
  std::vector<iovec> pieces(1025);
  for (size_t i = 0; i < 1024; ++i) pieces[i] = {data.data() + i * 3, 3};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = 1024;
  REQUIRE(sendmsg(pair.client, &message, 0) == static_cast<ssize_t>(data.size()));
  std::string got(data.size(), '\0');
  std::vector<iovec> room(1025);
  for (size_t i = 0; i < 1024; ++i) room[i] = {got.data() + i * 3, 3};
  msghdr in{};
  in.msg_iov = room.data();
  in.msg_iovlen = 1024;
  REQUIRE(recvmsg(pair.server, &in, MSG_WAITALL) == static_cast<ssize_t>(data.size()));
  REQUIRE(got == data);
  message.msg_iovlen = in.msg_iovlen = 1025;
  REQUIRE_ERRNO(sendmsg(pair.client, &message, 0), EMSGSIZE);
  REQUIRE_ERRNO(recvmsg(pair.server, &in, MSG_DONTWAIT), EMSGSIZE);
  REQUIRE_ERRNO(readv(pair.server, room.data(), 1025), EINVAL);
}

TEST_CASE("seldom: recvmmsg has a time-out, and tells what came before an error") {
  Pair pair = MakePair();
  char room[4][2];
  iovec iov[4];
  mmsghdr messages[4]{};
  for (int i = 0; i < 4; ++i) {
    iov[i] = {room[i], 2};
    messages[i].msg_hdr.msg_iov = &iov[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  REQUIRE(SendAll(pair.client, "abcd"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  timespec none{.tv_sec = 0, .tv_nsec = 0};
  REQUIRE(recvmmsg(pair.server, messages, 4, 0, &none) == 1);  // it is looked at behind each message
  timespec wrong{.tv_sec = 0, .tv_nsec = 2'000'000'000};
  REQUIRE_ERRNO(recvmmsg(pair.server, messages, 4, 0, &wrong), EINVAL);
  REQUIRE(recvmmsg(pair.server, messages, 4, MSG_DONTWAIT, nullptr) == 1);
  REQUIRE(messages[0].msg_len == 2);
  REQUIRE(std::string(room[0], 2) == "cd");
  REQUIRE(recvmmsg(pair.server, messages, 0, 0, nullptr) == 0);
}

TEST_CASE("seldom: shutdown ends another thread's poll, select and epoll_wait") {
  const int how = GENERATE(static_cast<int>(SHUT_RD), static_cast<int>(SHUT_RDWR));
  const int way = GENERATE(0, 1, 2);
  Pair pair = MakePair();
  std::atomic<pid_t> tid{0};
  auto waiting = Async([&] {
    tid = gettid();
    if (way == 0) return PollOne(pair.server, POLLIN) == 0 ? 0 : 1;
    if (way == 1) {
      fd_set set;
      FD_ZERO(&set);
      FD_SET(pair.server, &set);
      timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
      return select(pair.server + 1, &set, nullptr, nullptr, &patience);
    }
    Fd ep(epoll_create1(0));
    epoll_event event{.events = EPOLLIN, .data = {}};
    epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event);
    return epoll_wait(ep, &event, 1, kPatienceMs);
  });
  REQUIRE(Eventually([&] { return tid != 0 && IsAsleep(tid); }));
  const Stopwatch watch;
  REQUIRE(shutdown(pair.server, how) == 0);
  REQUIRE(Get(waiting) == 1);
  REQUIRE(watch.ms() < kPatienceMs / 2);
  char c;
  REQUIRE(recv(pair.server, &c, 1, 0) == 0);
}

TEST_CASE("seldom: who sleeps already sleeps on when the socket is made non-blocking") {
  Pair pair = MakePair();
  Listener listener = Listen();
  std::atomic<pid_t> reader{0}, acceptor{0};
  char c = 0;
  auto reading = Async([&] {
    reader = gettid();
    return recv(pair.server, &c, 1, 0);
  });
  auto accepting = Async([&] {
    acceptor = gettid();
    return accept(listener.fd, nullptr, nullptr);
  });
  REQUIRE(Eventually([&] { return reader != 0 && IsAsleep(reader) && acceptor != 0 && IsAsleep(acceptor); }));
  SetNonblocking(pair.server);
  SetNonblocking(listener.fd);
  REQUIRE(StillRunning(reading));
  REQUIRE(StillRunning(accepting));
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Get(reading) == 1);
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE(Fd(Get(accepting)) >= 0);
}

TEST_CASE("seldom: nobody's address is this host's") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Listener listener = Listen(family);
  Address anyone = Any(family, listener.address.port());
  Fd client = TcpSocket(family);
  REQUIRE(connect(client, anyone.get(), anyone.length) == 0);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(PeerOf(client).ToString() == listener.address.ToString());
  REQUIRE(PeerOf(server).ToString() == LocalOf(client).ToString());
  REQUIRE(SendAll(client, "here"));
  REQUIRE(ReceiveExactly(server, 4) == "here");
}

TEST_CASE("seldom: names of a socket that has none", "[unconnected]") {
  REQUIRE(LocalOf(TcpSocket()).ToString() == "0.0.0.0:0");
  REQUIRE(LocalOf(TcpSocket(AF_INET6)).ToString() == "[::]:0");
}

TEST_CASE("seldom: who waits for nothing but the peer's end") {
  Pair pair = MakePair();
  Fd ep(epoll_create1(0));
  epoll_event event{.events = EPOLLRDHUP, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(SendAll(pair.client, "data"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(epoll_wait(ep, &event, 1, kQuietMs) == 0);
  REQUIRE(PollOne(pair.server, POLLRDHUP, 0) == 0);
  auto polling = Async([&] { return PollOne(pair.server, POLLRDHUP); });
  REQUIRE(StillRunning(polling));
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(Get(polling) == POLLRDHUP);
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.events == EPOLLRDHUP);
  REQUIRE(ReceiveToEnd(pair.server) == "data");
}

TEST_CASE("seldom: urgent data in select's third set and for EPOLLPRI alone") {
  Pair pair = MakePair();
  Fd ep(epoll_create1(0));
  epoll_event event{.events = EPOLLPRI, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE(SendAll(pair.client, "abc"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(epoll_wait(ep, &event, 1, kQuietMs) == 0);
  const auto exceptional = [&](int ms) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair.server, &set);
    timeval time{.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    const int n = select(pair.server + 1, nullptr, nullptr, &set, &time);
    return n == 1 && FD_ISSET(pair.server, &set);
  };
  REQUIRE_FALSE(exceptional(0));
  auto selecting = Async([&] { return exceptional(kPatienceMs); });
  REQUIRE(StillRunning(selecting));
  REQUIRE(send(pair.client, "!", 1, MSG_OOB) == 1);
  REQUIRE(Get(selecting));
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.events == EPOLLPRI);
  char c;
  REQUIRE(Eventually([&] { return recv(pair.server, &c, 1, MSG_OOB) == 1; }));
  REQUIRE(c == '!');
  REQUIRE_FALSE(exceptional(0));
  REQUIRE(epoll_wait(ep, &event, 1, 0) == 0);
}

TEST_CASE("seldom: both ends close at once, again and again") {
  Listener listener = Listen();
  for (int round = 0; round < 100; ++round) {
    Pair pair = ConnectTo(listener);
    REQUIRE(SendAll(pair.client, "x"));
    REQUIRE(ReceiveExactly(pair.server, 1) == "x");
    std::atomic<int> ready{0};
    const auto close_when_ready = [&](Fd* fd) {
      ++ready;
      while (ready < 2) {
      }
      fd->reset();
      return true;
    };
    auto first = Async([&] { return close_when_ready(&pair.client); });
    REQUIRE(close_when_ready(&pair.server));
    REQUIRE(Get(first));
  }
}

// --- Calls that are for files, terminals or other sockets: each answers as for a socket that the kernel
// alone knows.

struct Answer {
  long result;
  int error;
  bool operator==(const Answer&) const = default;
};
template <typename Function>
Answer Ask(Function function) {
  errno = 0;
  const long result = static_cast<long>(function());
  return {result, result == -1 ? errno : 0};
}

TEST_CASE("seldom: calls that are for files") {
  Pair pair = MakePair();
  BarePair bare = BareConnection(AF_INET, BareSocket(AF_INET));
  const std::pair<const char*, std::function<long(int)>> calls[] = {
      {"ftruncate", [](int fd) { return ftruncate(fd, 0); }},
      {"fsync", [](int fd) { return fsync(fd); }},
      {"fdatasync", [](int fd) { return fdatasync(fd); }},
      {"flock", [](int fd) { return flock(fd, LOCK_EX | LOCK_NB); }},
      {"unlock", [](int fd) { return flock(fd, LOCK_UN); }},
      {"lockf", [](int fd) { return lockf(fd, F_TLOCK, 1); }},
      {"fchmod", [](int fd) { return fchmod(fd, 0600); }},
      {"fchown", [](int fd) { return fchown(fd, static_cast<uid_t>(-1), static_cast<gid_t>(-1)); }},
      {"fchdir", [](int fd) { return fchdir(fd); }},
      {"fallocate", [](int fd) { return fallocate(fd, 0, 0, 10); }},
      {"posix_fadvise", [](int fd) { return posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }},
      {"readahead", [](int fd) { return readahead(fd, 0, 10); }},
      {"sync_file_range", [](int fd) { return sync_file_range(fd, 0, 10, 0); }},
      {"isatty", [](int fd) { return isatty(fd) == 0 ? -1 : 0; }},
      {"tcgetpgrp", [](int fd) { return tcgetpgrp(fd); }},
      {"futimens", [](int fd) { return futimens(fd, nullptr); }},
      {"mapped to be written",
       [](int fd) {
         return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0;
       }},
      {"F_GETPIPE_SZ", [](int fd) { return fcntl(fd, F_GETPIPE_SZ); }},
      {"F_GETLEASE", [](int fd) { return fcntl(fd, F_GETLEASE); }},
      {"F_SETLEASE", [](int fd) { return fcntl(fd, F_SETLEASE, F_RDLCK); }},
      {"F_NOTIFY", [](int fd) { return fcntl(fd, F_NOTIFY, 1); }},
      {"F_GET_SEALS", [](int fd) { return fcntl(fd, F_GET_SEALS); }},
      {"F_GETSIG", [](int fd) { return fcntl(fd, F_GETSIG); }},
      {"an unknown fcntl", [](int fd) { return fcntl(fd, 9999, 0); }},
      {"F_DUPFD of a number too high", [](int fd) { return fcntl(fd, F_DUPFD, 0x7fffffff); }},
      {"F_DUPFD of a negative number", [](int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, -1); }},
      {"listen", [](int fd) { return listen(fd, 4); }},
      {"accept", [](int fd) { return accept(fd, nullptr, nullptr); }},
      {"accept4 with flags that are none", [](int fd) { return accept4(fd, nullptr, nullptr, 0x10000000); }},
  };
  for (const auto& [name, call] : calls) {
    INFO(name);
    const Answer ours = Ask([&call = call, &pair] { return call(pair.client); }),
                 oracle = Ask([&call = call, &bare] { return call(bare.client.get()); });
    INFO(strerrorname_np(ours.error) << ", TCP: " << strerrorname_np(oracle.error));
    REQUIRE(ours == oracle);
  }
  REQUIRE(SendAll(pair.client, "unharmed"));
  REQUIRE(ReceiveExactly(pair.server, 8) == "unharmed");
}

TEST_CASE("seldom: every ioctl of terminals, sockets and files") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  Fd fresh = TcpSocket();
  BarePair bare = BareConnection(AF_INET, BareSocket(AF_INET));
  const BareFd bare_fresh = BareSocket(AF_INET);
  const std::tuple<const char*, int, int> stages[] = {{"client", pair.client, bare.client.get()},
                                                      {"listener", listener.fd, bare.listener.get()},
                                                      {"fresh", fresh, bare_fresh.get()}};
  // Reading ones alone: 0x5401 on are terminals', 0x8900 on sockets' (to 0x89ff), 0x5450 on files'.
  for (const auto& [stage, ours_fd, oracle_fd] : stages) {
    for (const auto& [first, last] :
         {std::pair(0x5401ul, 0x5402ul), std::pair(0x5405ul, 0x5405ul), std::pair(0x540ful, 0x5411ul),
          std::pair(0x5413ul, 0x5413ul), std::pair(0x541bul, 0x541bul), std::pair(0x5428ul, 0x5440ul),
          std::pair(0x5460ul, 0x5470ul), std::pair(0x8903ul, 0x890cul), std::pair(0x8910ul, 0x8913ul),
          std::pair(0x8970ul, 0x8980ul), std::pair(0x89e0ul, 0x89eful), std::pair(0x1234ul, 0x1238ul)}) {
      for (unsigned long request = first; request <= last; ++request) {
        std::array<char, 512> mine{}, theirs{};
        const Answer ours = Ask([&, fd = ours_fd] { return ioctl(fd, request, mine.data()); });
        const Answer oracle =
            Ask([&, fd = oracle_fd] { return syscall(SYS_ioctl, fd, request, theirs.data()); });
        INFO(stage << ", " << std::hex << request << ": " << strerrorname_np(ours.error)
                   << ", TCP: " << strerrorname_np(oracle.error));
        REQUIRE(ours == oracle);
        REQUIRE(mine == theirs);
      }
    }
  }
}

// --- Options by what they really take

TEST_CASE("seldom: congestion control by name") {
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  BarePair bare = BareConnection(AF_INET, BareSocket(AF_INET));
  const auto names_of = [](int ours, int oracle) {
    char mine[32] = {}, theirs[32] = {};
    socklen_t my_length = sizeof mine, their_length = sizeof theirs;
    REQUIRE(getsockopt(ours, IPPROTO_TCP, TCP_CONGESTION, mine, &my_length) == 0);
    REQUIRE(syscall(SYS_getsockopt, oracle, IPPROTO_TCP, TCP_CONGESTION, theirs, &their_length) == 0);
    REQUIRE(std::string(mine) == theirs);
    REQUIRE(my_length == their_length);
    return std::string(mine);
  };
  names_of(pair.client, bare.client.get());
  for (const std::string name : {"reno", "cubic", "no such", "", "reno"}) {
    for (const auto& [ours, oracle] : {std::pair(pair.client.get(), bare.client.get()),
                                       std::pair(listener.fd.get(), bare.listener.get())}) {
      const auto size = static_cast<socklen_t>(name.size());
      REQUIRE(Ask([&, fd = ours] {
                return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), size);
              }) == Ask([&, fd = oracle] {
                return syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), size);
              }));
      names_of(ours, oracle);
    }
  }
  Pair heir = ConnectTo(listener);
  char name[32] = {};
  socklen_t length = sizeof name;
  REQUIRE(getsockopt(heir.server, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
  REQUIRE(std::string(name) == "reno");
}

TEST_CASE("seldom: data with the connect, by MSG_FASTOPEN") {
  Listener listener = Listen();
  BareFd bare_listener = BareListener(AF_INET, BareSocket(AF_INET));
  Address bare_name;
  REQUIRE(syscall(SYS_getsockname, bare_listener.get(), bare_name.get(), &bare_name.length) == 0);
  Fd client = TcpSocket();
  BareFd bare = BareSocket(AF_INET);
  const auto both = [&](const char* data, size_t size, int flags, bool name) {
    const Answer ours = Ask([&] {
      return name ? sendto(client, data, size, flags | MSG_NOSIGNAL, listener.address.get(),
                           listener.address.length)
                  : send(client, data, size, flags | MSG_NOSIGNAL);
    });
    const Answer oracle = Ask([&] {
      return name ? syscall(SYS_sendto, bare.get(), data, size, flags | MSG_NOSIGNAL, bare_name.get(),
                            bare_name.length)
                  : syscall(SYS_sendto, bare.get(), data, size, flags | MSG_NOSIGNAL, nullptr, 0);
    });
    INFO(data << ": " << ours.result << " " << strerrorname_np(ours.error) << ", TCP: " << oracle.result
              << " " << strerrorname_np(oracle.error));
    REQUIRE(ours == oracle);
    return ours;
  };
  both("nowhere", 7, MSG_FASTOPEN, false);
  REQUIRE(both("first", 5, MSG_FASTOPEN, true).result == 5);
  both("again", 5, MSG_FASTOPEN, true);
  both("plain", 5, 0, false);
  Fd server(accept(listener.fd, nullptr, nullptr));
  REQUIRE(server >= 0);
  REQUIRE(shutdown(client, SHUT_WR) == 0);
  BareFd bare_server(syscall(SYS_accept, bare_listener.get(), nullptr, nullptr));
  REQUIRE(syscall(SYS_shutdown, bare.get(), SHUT_WR) == 0);
  char room[64];
  const auto expected =
      syscall(SYS_recvfrom, bare_server.get(), room, sizeof room, MSG_WAITALL, nullptr, nullptr);
  REQUIRE(ReceiveToEnd(server) == std::string(room, static_cast<size_t>(expected)));
}

}  // namespace
}  // namespace posix_test
