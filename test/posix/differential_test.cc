// Random sequences of calls on two connections at once, one of them made by bare system calls: whatever TCP
// answers, results, errno, bytes and readiness, the other has to answer, too. A sequence is named by its
// number, which chooses everything.
//
//   POSIX_SEQUENCES=COUNT POSIX_FIRST=NUMBER posix_tests "differential*"      more of them, or one again
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "test/posix/twins.h"

namespace posix_test {
namespace {

constexpr int kSettleMs = 1000;
constexpr size_t kMost = 60;  // bytes of one send: no buffer is ever full

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed * 2654435761u + 1) {}
  size_t Below(size_t n) { return engine_() % n; }
  bool Chance(size_t one_in) { return Below(one_in) == 0; }
  template <typename T, size_t N>
  const T& Of(const T (&choices)[N]) {
    return choices[Below(N)];
  }

 private:
  std::mt19937 engine_;
};

std::string Errno() { return strerrorname_np(errno); }
std::string Result(long result) { return result < 0 ? Errno() : std::to_string(result); }

// The calls of one of the two: the C library's, which a preload replaces, or the kernel's own.
struct Calls {
  bool bare;

  ssize_t Send(int fd, const char* data, size_t size, int flags) const {
    return bare ? syscall(SYS_sendto, fd, data, size, flags, nullptr, 0) : send(fd, data, size, flags);
  }
  ssize_t Write(int fd, const char* data, size_t size) const {
    return bare ? syscall(SYS_write, fd, data, size) : write(fd, data, size);
  }
  ssize_t Writev(int fd, const iovec* iov, int count) const {
    return bare ? syscall(SYS_writev, fd, iov, count) : writev(fd, iov, count);
  }
  ssize_t Receive(int fd, char* data, size_t size, int flags) const {
    return bare ? syscall(SYS_recvfrom, fd, data, size, flags, nullptr, nullptr)
                : recv(fd, data, size, flags);
  }
  ssize_t Read(int fd, char* data, size_t size) const {
    return bare ? syscall(SYS_read, fd, data, size) : read(fd, data, size);
  }
  ssize_t Readv(int fd, const iovec* iov, int count) const {
    return bare ? syscall(SYS_readv, fd, iov, count) : readv(fd, iov, count);
  }
  ssize_t ReceiveMessage(int fd, msghdr* message, int flags) const {
    return bare ? syscall(SYS_recvmsg, fd, message, flags) : recvmsg(fd, message, flags);
  }
  int Shutdown(int fd, int how) const {
    return bare ? static_cast<int>(syscall(SYS_shutdown, fd, how)) : shutdown(fd, how);
  }
  int Ioctl(int fd, unsigned long request, int* value) const {
    return bare ? static_cast<int>(syscall(SYS_ioctl, fd, request, value)) : ioctl(fd, request, value);
  }
  int Get(int fd, int level, int name, void* value, socklen_t* length) const {
    return bare ? static_cast<int>(syscall(SYS_getsockopt, fd, level, name, value, length))
                : getsockopt(fd, level, name, value, length);
  }
  int Set(int fd, int level, int name, const void* value, socklen_t length) const {
    return bare ? static_cast<int>(syscall(SYS_setsockopt, fd, level, name, value, length))
                : setsockopt(fd, level, name, value, length);
  }
  int Poll(pollfd* fds, nfds_t count) const {
    const timespec at_once{};
    return bare ? static_cast<int>(syscall(SYS_ppoll, fds, count, &at_once, nullptr, 0))
                : poll(fds, count, 0);
  }
  int Close(int fd) const { return bare ? static_cast<int>(syscall(SYS_close, fd)) : close(fd); }
  int Dup(int fd) const { return bare ? static_cast<int>(syscall(SYS_dup, fd)) : dup(fd); }
  int Fcntl(int fd, int command, int value) const {
    return bare ? static_cast<int>(syscall(SYS_fcntl, fd, command, value)) : fcntl(fd, command, value);
  }
  int PeerName(int fd, Address* address) const {
    return bare ? static_cast<int>(syscall(SYS_getpeername, fd, address->get(), &address->length))
                : getpeername(fd, address->get(), &address->length);
  }
  int EpollControl(int ep, int operation, int fd, epoll_event* event) const {
    return bare ? static_cast<int>(syscall(SYS_epoll_ctl, ep, operation, fd, event))
                : epoll_ctl(ep, operation, fd, event);
  }
  int EpollWait(int ep, epoll_event* events, int count) const {
    return bare ? static_cast<int>(syscall(SYS_epoll_pwait, ep, events, count, 0, nullptr, 0))
                : epoll_wait(ep, events, count, 0);
  }
};

std::string Events(short events) {
  static constexpr std::pair<short, const char*> kNames[] = {
      {POLLIN, "IN"},   {POLLOUT, "OUT"}, {POLLPRI, "PRI"},  {POLLRDHUP, "RDHUP"},
      {POLLERR, "ERR"}, {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}};
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if ((events & bit) != 0) text += std::string(text.empty() ? "" : "|") + name;
  }
  return text.empty() ? "0" : text;
}

// A few sockets of one kind.
struct World {
  Calls calls;
  std::vector<int> fds;  // -1: closed
  int epoll = -1;

  explicit World(bool bare) : calls{bare} {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    for (const int fd : fds) {
      if (fd >= 0) calls.Close(fd);
    }
    if (epoll >= 0) calls.Close(epoll);
  }

  std::string Ready(int fd) const {
    pollfd one{.fd = fd, .events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP, .revents = 0};
    calls.Poll(&one, 1);
    return Events(one.revents);
  }
  std::string Number(int fd, unsigned long request) const {
    int value = 0;
    return calls.Ioctl(fd, request, &value) < 0 ? Errno() : std::to_string(value);
  }
  std::string Option(int fd, int level, int name) const {
    int value = 0;
    socklen_t length = sizeof value;
    return calls.Get(fd, level, name, &value, &length) < 0 ? Errno() : std::to_string(value);
  }
  // What is known without changing anything.
  std::string State() const {
    std::string text;
    for (const int fd : fds) {
      if (fd < 0) continue;
      text += " [" + Ready(fd) + " inq " + Number(fd, FIONREAD) + " mark " + Number(fd, SIOCATMARK) + "]";
    }
    return text;
  }
};

using Step = std::function<std::string(World&)>;

// Plays sequences in both worlds, and keeps what differs.
class Player {
 public:
  Player(uint32_t number, World& ours, World& oracle) : ours_(ours), oracle_(oracle) {
    log_ = "sequence " + std::to_string(number);
  }
  const std::string& log() const { return log_; }
  bool Settles() {
    std::string mine, theirs;
    const Stopwatch watch;
    do {
      mine = ours_.State();
      theirs = oracle_.State();
      if (mine == theirs) return true;
    } while (watch.ms() < kSettleMs);
    log_ += "\n      state" + mine + "\n  where TCP" + theirs;
    return false;
  }
  // False at the first difference.
  bool Play(const std::string& what, const Step& step) {
    const std::string mine = step(ours_), theirs = step(oracle_);
    log_ += "\n  " + what + " = " + theirs;
    if (mine != theirs) {
      log_ += ", but here " + mine;
      return false;
    }
    return Settles();
  }

 private:
  World& ours_;
  World& oracle_;
  std::string log_;
};

uint32_t Setting(const char* name, uint32_t otherwise) {
  const char* const value = getenv(name);
  return value != nullptr ? static_cast<uint32_t>(strtoul(value, nullptr, 10)) : otherwise;
}

// `play(number)`: what differs, or nothing.
void PlayAll(uint32_t count, const std::function<std::string(uint32_t)>& play) {
  const uint32_t first = Setting("POSIX_FIRST", 1);
  std::string differences;
  int found = 0;
  for (uint32_t number = first; number < first + Setting("POSIX_SEQUENCES", count) && found < 5; ++number) {
    const std::string difference = play(number);
    if (difference.empty()) continue;
    ++found;
    differences += difference + "\n";
  }
  INFO(differences);
  REQUIRE(found == 0);
}

// --- Calls on a connection's two ends

std::string Quote(const char* data, ssize_t size) {
  return size <= 0 ? "" : " '" + std::string(data, static_cast<size_t>(size)) + "'";
}

std::string FlagNames(int flags) {
  static constexpr std::pair<int, const char*> kNames[] = {
      {MSG_PEEK, "|PEEK"}, {MSG_TRUNC, "|TRUNC"}, {MSG_WAITALL, "|WAITALL"}};
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if ((flags & bit) != 0) text += name;
  }
  return text;
}

struct Call {
  std::string what;
  Step step;
};

Call SendCall(Random& random, size_t side) {
  std::string data;
  for (size_t n = random.Of({size_t{0}, size_t{1}, size_t{2}, size_t{7}, kMost}); n > 0; --n)
    data += static_cast<char>('a' + random.Below(26));
  const std::string end = side == 0 ? "client" : "server";
  const std::string said = end + " '" + data + "'";
  switch (random.Below(3)) {
    case 0:
      return {"write " + said,
              [=](World& w) { return Result(w.calls.Write(w.fds[side], data.data(), data.size())); }};
    case 1:
      return {"writev " + said, [=](World& w) {
                const iovec iov[3] = {
                    {const_cast<char*>(data.data()), data.size() / 2},
                    {nullptr, 0},
                    {const_cast<char*>(data.data()) + data.size() / 2, data.size() - data.size() / 2}};
                return Result(w.calls.Writev(w.fds[side], iov, 3));
              }};
    default:
      return {"send " + said, [=](World& w) {
                return Result(w.calls.Send(w.fds[side], data.data(), data.size(), MSG_NOSIGNAL));
              }};
  }
}

Call ReceiveCall(Random& random, size_t side) {
  const size_t size = random.Of({size_t{0}, size_t{1}, size_t{2}, size_t{5}, size_t{50}, size_t{200}});
  const std::string end = side == 0 ? "client " : "server ";
  const std::string said = end + std::to_string(size);
  switch (random.Below(4)) {
    case 0:
      return {"read " + said, [=](World& w) {
                char room[200];
                const ssize_t n = w.calls.Read(w.fds[side], room, size);
                return Result(n) + Quote(room, n);
              }};
    case 1:
      return {"readv " + said, [=](World& w) {
                char room[200];
                const iovec iov[2] = {{room, size / 3}, {room + size / 3, size - size / 3}};
                const ssize_t n = w.calls.Readv(w.fds[side], iov, 2);
                return Result(n) + Quote(room, n);
              }};
    default:
      break;
  }
  const int flags =
      random.Of<int>({0, 0, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_PEEK | MSG_WAITALL, MSG_PEEK | MSG_TRUNC});
  if (random.Chance(3)) {
    return {"recvmsg" + FlagNames(flags) + " " + said, [=](World& w) {
              char room[200];
              iovec iov{room, size};
              msghdr message{};
              message.msg_iov = &iov;
              message.msg_iovlen = 1;
              const ssize_t n = w.calls.ReceiveMessage(w.fds[side], &message, flags | MSG_DONTWAIT);
              const bool counted_only = (flags & MSG_TRUNC) != 0;
              return Result(n) + (counted_only ? "" : Quote(room, n)) +
                     (n >= 0 ? " flags " + std::to_string(message.msg_flags) : "");
            }};
  }
  return {"recv" + FlagNames(flags) + " " + said, [=](World& w) {
            char room[200];
            const ssize_t n = w.calls.Receive(w.fds[side], room, size, flags | MSG_DONTWAIT);
            const bool counted_only = (flags & MSG_TRUNC) != 0;
            return Result(n) + (counted_only ? "" : Quote(room, n));
          }};
}

std::string WaitForEvents(World& w) {
  epoll_event events[4];
  const int n = w.calls.EpollWait(w.epoll, events, 4);
  if (n < 0) return Errno();
  std::map<uint64_t, std::string> sorted;
  for (int i = 0; i < n; ++i)
    sorted[events[i].data.u64] += Events(static_cast<short>(events[i].events)) + ";";
  std::string text;
  for (const auto& [who, what] : sorted) text += " " + std::to_string(who) + ":" + what;
  return std::to_string(n) + text;
}

uint32_t RandomEvents(Random& random) {
  uint32_t events = random.Of<uint32_t>({uint32_t{EPOLLIN}, uint32_t{EPOLLIN} | EPOLLOUT,
                                         uint32_t{EPOLLRDHUP}, uint32_t{EPOLLIN} | EPOLLRDHUP,
                                         uint32_t{EPOLLOUT}, uint32_t{EPOLLPRI}, uint32_t{0}});
  // An edge of room may come once more here, when the peer's credit comes back.
  if (random.Chance(2) && (events & EPOLLOUT) == 0) events |= EPOLLET;
  if (random.Chance(4)) events |= EPOLLONESHOT;
  return events;
}

Call EpollCall(Random& random, size_t side) {
  if (random.Chance(3)) {
    const uint32_t events = RandomEvents(random);
    const int operation = random.Of<int>({EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_MOD, EPOLL_CTL_DEL});
    return {"epoll_ctl " + std::to_string(operation) + (side == 0 ? " client " : " server ") +
                Events(static_cast<short>(events)) + ((events & EPOLLET) != 0 ? "|ET" : "") +
                ((events & EPOLLONESHOT) != 0 ? "|ONESHOT" : ""),
            [=](World& w) {
              epoll_event event{.events = events, .data = {.u64 = side}};
              return Result(w.calls.EpollControl(w.epoll, operation, w.fds[side], &event));
            }};
  }
  return {"epoll_wait", WaitForEvents};
}

Call OtherCall(Random& random, size_t side) {
  const std::string end = side == 0 ? "client" : "server";
  switch (random.Below(7)) {
    case 0: {
      const int how = static_cast<int>(random.Below(3));
      return {"shutdown " + end + " " + std::to_string(how),
              [=](World& w) { return Result(w.calls.Shutdown(w.fds[side], how)); }};
    }
    case 1:
      return {"SO_ERROR " + end, [=](World& w) { return w.Option(w.fds[side], SOL_SOCKET, SO_ERROR); }};
    case 2: {
      const int value = random.Of({1, 0, 3, 20});
      return {"SO_RCVLOWAT " + end + " " + std::to_string(value), [=](World& w) {
                return Result(w.calls.Set(w.fds[side], SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value));
              }};
    }
    case 3:
      return {"another number " + end, [=](World& w) {
                const int copy = w.calls.Dup(w.fds[side]);
                if (copy < 0) return Errno();
                const int closed = w.calls.Close(w.fds[side]);
                w.fds[side] = copy;
                return Result(closed);
              }};
    case 4:
      return {"getpeername " + end, [=](World& w) {
                Address address;
                return Result(w.calls.PeerName(w.fds[side], &address));
              }};
    case 5: {
      if (!random.Chance(2)) break;
      const bool reset = random.Chance(3);
      return {std::string(reset ? "reset " : "close ") + end, [=](World& w) {
                const linger value{.l_onoff = 1, .l_linger = 0};
                if (reset) w.calls.Set(w.fds[side], SOL_SOCKET, SO_LINGER, &value, sizeof value);
                return Result(w.calls.Close(std::exchange(w.fds[side], -1)));
              }};
    }
    default:
      break;
  }
  return {"state " + end, [=](World& w) {
            tcp_info info{};
            socklen_t length = sizeof info;
            if (w.calls.Get(w.fds[side], IPPROTO_TCP, TCP_INFO, &info, &length) < 0) return Errno();
            // Which of the states of a connection that has been ended by this end is the link's business.
            return std::string(info.tcpi_state == TCP_ESTABLISHED  ? "established"
                               : info.tcpi_state == TCP_CLOSE_WAIT ? "close-wait"
                                                                   : "other");
          }};
}

std::string PlayConnection(uint32_t number, bool with_epoll) {
  Random random(number);
  Pair pair = MakePair();
  BarePair bare = BareConnection(AF_INET, BareSocket(AF_INET));
  World ours(false), oracle(true);
  ours.fds = {pair.client.release(), pair.server.release()};
  oracle.fds = {bare.client.get(), bare.server.get()};
  bare.client.release();
  bare.server.release();
  for (World* w : {&ours, &oracle}) {
    for (const int fd : w->fds) w->calls.Fcntl(fd, F_SETFL, O_NONBLOCK);
    if (!with_epoll) continue;
    w->epoll = w->calls.bare ? static_cast<int>(syscall(SYS_epoll_create1, 0)) : epoll_create1(0);
  }
  Player player(number, ours, oracle);
  const size_t length = 3 + number % 23;
  for (size_t i = 0; i < length; ++i) {
    size_t side = random.Below(2);
    if (ours.fds[side] < 0) side = 1 - side;
    if (ours.fds[side] < 0) return "";
    Call call;
    switch (random.Below(with_epoll ? 7 : 5)) {
      case 0:
      case 1:
        call = SendCall(random, side);
        break;
      case 2:
      case 3:
        call = ReceiveCall(random, side);
        break;
      case 4:
        call = OtherCall(random, side);
        break;
      default:
        call = EpollCall(random, side);
        break;
    }
    if (!player.Play(call.what, call.step)) return player.log();
  }
  return "";
}

TEST_CASE("differential: a connection's two ends") {
  signal(SIGPIPE, SIG_IGN);
  PlayAll(300, [](uint32_t number) { return PlayConnection(number, false); });
}

TEST_CASE("differential: with an epoll set") {
  signal(SIGPIPE, SIG_IGN);
  PlayAll(300, [](uint32_t number) { return PlayConnection(number, true); });
}

}  // namespace
}  // namespace posix_test
