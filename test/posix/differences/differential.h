// Random sequences of calls on sockets and, one by one, the same on others that bare system calls have made:
// whatever TCP answers, results, errno, bytes and readiness, the others have to answer, too. A sequence is
// named by its number, which chooses everything.
//
//   POSIX_SEQUENCES=COUNT POSIX_FIRST=NUMBER posix_tests "differential*"      more of them, or one again
#ifndef SDP_TEST_POSIX_DIFFERENTIAL_H_
#define SDP_TEST_POSIX_DIFFERENTIAL_H_

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "test/posix/twins.h"

namespace posix_test {

inline constexpr int kSettleMs = 5000;  // waited out only by what differs
inline constexpr size_t kMost = 60;     // bytes of one send: no buffer is ever full

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

inline std::string Errno() { return strerrorname_np(errno); }
inline std::string Answer(long result) { return result < 0 ? Errno() : std::to_string(result); }

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
  int Connect(int fd, const Address& address) const {
    const auto* const to = reinterpret_cast<const sockaddr*>(&address.storage);
    return bare ? static_cast<int>(syscall(SYS_connect, fd, to, address.length))
                : connect(fd, to, address.length);
  }
  int Accept(int fd) const {
    return bare ? static_cast<int>(syscall(SYS_accept4, fd, nullptr, nullptr, SOCK_NONBLOCK))
                : accept4(fd, nullptr, nullptr, SOCK_NONBLOCK);
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

inline std::string Events(short events) {
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

inline uint32_t Setting(const char* name, uint32_t otherwise) {
  const char* const value = getenv(name);
  return value != nullptr ? static_cast<uint32_t>(strtoul(value, nullptr, 10)) : otherwise;
}

// `play(number)`: what differs, or nothing. Of differences, each of which may take kSettleMs, so few that
// run.py does not take the case for hung.
inline void PlayAll(uint32_t count, const std::function<std::string(uint32_t)>& play) {
  const uint32_t first = Setting("POSIX_FIRST", 1);
  std::string differences;
  int found = 0;
  for (uint32_t number = first; number < first + Setting("POSIX_SEQUENCES", count) && found < 3; ++number) {
    const std::string difference = play(number);
    if (difference.empty()) continue;
    ++found;
    differences += difference + "\n";
  }
  INFO(differences);
  REQUIRE(found == 0);
}

inline std::string Quote(const char* data, ssize_t size) {
  return size <= 0 ? "" : " '" + std::string(data, static_cast<size_t>(size)) + "'";
}

inline std::string FlagNames(int flags) {
  static constexpr std::pair<int, const char*> kNames[] = {
      {MSG_PEEK, "|PEEK"}, {MSG_TRUNC, "|TRUNC"}, {MSG_WAITALL, "|WAITALL"}, {MSG_OOB, "|OOB"}};
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

// The two ends of a connection, which do not block: client and server.
inline void MakeConnections(World& ours, World& oracle) {
  Pair pair = MakePair();
  BarePair bare = BareConnection(AF_INET, BareSocket(AF_INET));
  ours.fds = {pair.client.release(), pair.server.release()};
  oracle.fds = {bare.client.release(), bare.server.release()};
  for (World* w : {&ours, &oracle}) {
    for (const int fd : w->fds) w->calls.Fcntl(fd, F_SETFL, O_NONBLOCK);
  }
}

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_DIFFERENTIAL_H_
