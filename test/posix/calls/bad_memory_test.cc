// Memory that is not the program's, in every call that takes some, on sockets of all kinds: the library looks
// at it before the kernel does, and must not fall over it. The oracle is the bare system call on a twin.
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "test/posix/sanitizers.h"
#include "test/posix/twins.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMuch =
    4096;  // what is sent and received: more than a library would copy along with a header

enum class Bad { kNull, kLast, kFirstPage, kUnmapped, kHalf };
const char* const kNames[] = {"null", "(void*)-1", "(void*)8", "unmapped", "half of it unmapped"};

// Two pages, of which the program has the first alone.
class Memory {
 public:
  Memory()
      : pages_(static_cast<char*>(
            mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(pages_ != MAP_FAILED);
    REQUIRE(mprotect(pages_ + kPage, kPage, PROT_NONE) == 0);
  }
  ~Memory() { munmap(pages_, 2 * kPage); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // A place for `size` bytes; of the half that is there each byte is 0.
  template <typename T = void>
  T* At(Bad bad, size_t size = sizeof(T)) const {
    // Not to the compiler: it believes the declarations.
    static volatile uintptr_t address;
    switch (bad) {
      case Bad::kNull:
        address = 0;
        break;
      case Bad::kLast:
        address = ~uintptr_t{0};
        break;
      case Bad::kFirstPage:
        address = 8;
        break;
      case Bad::kUnmapped:
        address = reinterpret_cast<uintptr_t>(pages_ + kPage);
        break;
      case Bad::kHalf:
        address = reinterpret_cast<uintptr_t>(pages_ + kPage - size / 2);
        break;
    }
    memset(pages_, 0, kPage);
    return reinterpret_cast<T*>(address);
  }

 private:
  char* const pages_;
};

template <>
[[maybe_unused]] void* Memory::At<void>(Bad bad, size_t size) const {
  return At<char>(bad, size);
}

// A call as the C library has it and by the bare system call.
#define EITHER(bare, name, ...) \
  ((bare) ? syscall(SYS_##name, __VA_ARGS__) : static_cast<long>(name(__VA_ARGS__)))

struct What {
  bool bare;
  int fd;
  int epoll;
  int file;
  Bad bad;
  const Memory& memory;
};

struct Case {
  const char* name;
  std::function<long(const What&)> call;
};

msghdr Message(iovec* piece) {
  msghdr message{};
  message.msg_iov = piece;
  message.msg_iovlen = 1;
  return message;
}

long SendMessage(const What& w, const std::function<void(msghdr*)>& change) {
  static char byte = 'x';
  iovec piece{&byte, 1};
  msghdr message = Message(&piece);
  change(&message);
  return EITHER(w.bare, sendmsg, w.fd, &message, MSG_NOSIGNAL);
}
long ReceiveMessage(const What& w, const std::function<void(msghdr*)>& change) {
  char room[64];
  iovec piece{room, sizeof room};
  msghdr message = Message(&piece);
  change(&message);
  return EITHER(w.bare, recvmsg, w.fd, &message, MSG_DONTWAIT);
}

// What the kernel says of the memory is all there is to see of these: none changes what is open.
const Case kCalls[] = {
    {"sendmsg",
     [](const What& w) { return EITHER(w.bare, sendmsg, w.fd, w.memory.At<msghdr>(w.bad), MSG_NOSIGNAL); }},
    {"sendmsg, its pieces",
     [](const What& w) {
       return SendMessage(w, [&](msghdr* m) { m->msg_iov = w.memory.At<iovec>(w.bad); });
     }},
    {"sendmsg, control messages",
     [](const What& w) {
       return SendMessage(w, [&](msghdr* m) {
         m->msg_control = w.memory.At(w.bad, 64);
         m->msg_controllen = 64;
       });
     }},
    {"sendmsg, one that passes descriptors",
     [](const What& w) {
       return SendMessage(w, [&](msghdr* m) {
         // The header is there, the descriptors are not.
         auto* const control = w.memory.At<char>(w.bad, CMSG_SPACE(64 * sizeof(int)));
         if (w.bad == Bad::kHalf) {
           const cmsghdr header{
               .cmsg_len = CMSG_LEN(64 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
           memcpy(control, &header, sizeof header);
         }
         m->msg_control = control;
         m->msg_controllen = CMSG_SPACE(64 * sizeof(int));
       });
     }},
    {"sendmmsg",
     [](const What& w) {
       return EITHER(w.bare, sendmmsg, w.fd, w.memory.At<mmsghdr>(w.bad), 2, MSG_NOSIGNAL);
     }},
    {"write", [](const What& w) { return EITHER(w.bare, write, w.fd, w.memory.At(w.bad, kMuch), kMuch); }},
    {"writev",
     [](const What& w) {
       return EITHER(w.bare, writev, w.fd, w.memory.At<iovec>(w.bad, 2 * sizeof(iovec)), 2);
     }},
    {"writev, a piece",
     [](const What& w) {
       const iovec piece{w.memory.At(w.bad, kMuch), kMuch};
       return EITHER(w.bare, writev, w.fd, &piece, 1);
     }},
    {"sendto",
     [](const What& w) {
       void* const data = w.memory.At(w.bad, kMuch);
       return w.bare ? syscall(SYS_sendto, w.fd, data, kMuch, MSG_NOSIGNAL, nullptr, 0)
                     : send(w.fd, data, kMuch, MSG_NOSIGNAL);
     }},
    {"recvmsg",
     [](const What& w) { return EITHER(w.bare, recvmsg, w.fd, w.memory.At<msghdr>(w.bad), MSG_DONTWAIT); }},
    {"recvmsg, its pieces",
     [](const What& w) {
       return ReceiveMessage(w, [&](msghdr* m) { m->msg_iov = w.memory.At<iovec>(w.bad); });
     }},
    {"recvmsg, a piece",
     [](const What& w) {
       iovec piece{w.memory.At(w.bad, 4), 4};
       return ReceiveMessage(w, [&](msghdr* m) { m->msg_iov = &piece; });
     }},
    {"recvmmsg",
     [](const What& w) {
       return EITHER(w.bare, recvmmsg, w.fd, w.memory.At<mmsghdr>(w.bad), 1, MSG_DONTWAIT, nullptr);
     }},
    {"read", [](const What& w) { return EITHER(w.bare, read, w.fd, w.memory.At(w.bad, 4), 4); }},
    {"readv",
     [](const What& w) {
       return EITHER(w.bare, readv, w.fd, w.memory.At<iovec>(w.bad, 2 * sizeof(iovec)), 2);
     }},
    {"bind",
     [](const What& w) {
       return EITHER(w.bare, bind, w.fd, w.memory.At<sockaddr>(w.bad), sizeof(sockaddr));
     }},
    {"connect",
     [](const What& w) {
       return EITHER(w.bare, connect, w.fd, w.memory.At<sockaddr>(w.bad), sizeof(sockaddr));
     }},
    {"getsockname, the length",
     [](const What& w) {
       sockaddr_storage room;
       return EITHER(w.bare, getsockname, w.fd, reinterpret_cast<sockaddr*>(&room),
                     w.memory.At<socklen_t>(w.bad));
     }},
    {"getpeername, the length",
     [](const What& w) {
       sockaddr_storage room;
       return EITHER(w.bare, getpeername, w.fd, reinterpret_cast<sockaddr*>(&room),
                     w.memory.At<socklen_t>(w.bad));
     }},
    {"getsockopt, the value",
     [](const What& w) {
       socklen_t length = sizeof(int);
       return EITHER(w.bare, getsockopt, w.fd, SOL_SOCKET, SO_ERROR, w.memory.At(w.bad, sizeof(int)),
                     &length);
     }},
    {"getsockopt, the length",
     [](const What& w) {
       int value;
       return EITHER(w.bare, getsockopt, w.fd, SOL_SOCKET, SO_RCVLOWAT, &value,
                     w.memory.At<socklen_t>(w.bad));
     }},
    {"setsockopt",
     [](const What& w) {
       return EITHER(w.bare, setsockopt, w.fd, SOL_SOCKET, SO_RCVLOWAT, w.memory.At(w.bad, sizeof(int)),
                     sizeof(int));
     }},
    {"setsockopt, linger",
     [](const What& w) {
       return EITHER(w.bare, setsockopt, w.fd, SOL_SOCKET, SO_LINGER, w.memory.At<linger>(w.bad),
                     sizeof(linger));
     }},
    {"ioctl, FIONREAD",
     [](const What& w) { return EITHER(w.bare, ioctl, w.fd, FIONREAD, w.memory.At<int>(w.bad)); }},
    {"ioctl, FIONBIO",
     [](const What& w) { return EITHER(w.bare, ioctl, w.fd, FIONBIO, w.memory.At<int>(w.bad)); }},
    {"sendfile, the offset",
     [](const What& w) { return EITHER(w.bare, sendfile, w.fd, w.file, w.memory.At<off_t>(w.bad), 10); }},
    {"splice, the offset",
     [](const What& w) {
       return EITHER(w.bare, splice, w.fd, w.memory.At<off64_t>(w.bad), w.fd, nullptr, 10, 0);
     }},
    {"poll", [](const What& w) { return EITHER(w.bare, poll, w.memory.At<pollfd>(w.bad), 1, 0); }},
    {"poll of two, the second",
     [](const What& w) {
       auto* const fds = w.memory.At<pollfd>(w.bad, 2 * sizeof(pollfd));
       if (w.bad == Bad::kHalf) fds[0] = {.fd = w.fd, .events = POLLIN, .revents = 0};
       return EITHER(w.bare, poll, fds, 2, 0);
     }},
    {"epoll_ctl",
     [](const What& w) {
       return EITHER(w.bare, epoll_ctl, w.epoll, EPOLL_CTL_ADD, w.fd, w.memory.At<epoll_event>(w.bad));
     }},
    {"epoll_ctl of a set",
     [](const What& w) {
       const int inner = static_cast<int>(w.bare ? syscall(SYS_epoll_create1, 0) : epoll_create1(0));
       const long result =
           EITHER(w.bare, epoll_ctl, w.epoll, EPOLL_CTL_ADD, inner, w.memory.At<epoll_event>(w.bad));
       const int error = errno;
       w.bare ? static_cast<int>(syscall(SYS_close, inner)) : close(inner);
       errno = error;
       return result;
     }},
    {"epoll_pwait2, the time",
     [](const What& w) {
       epoll_event event;
       if (w.bad == Bad::kNull) return -1L;  // for ever
       if (w.bare)
         return syscall(SYS_epoll_pwait2, w.epoll, &event, 1, w.memory.At<timespec>(w.bad), nullptr, 8);
       return static_cast<long>(epoll_pwait2(w.epoll, &event, 1, w.memory.At<timespec>(w.bad), nullptr));
     }},
};

// One descriptor and a twin of it that bare calls have made; what is sent to them, and whether they are still
// what they were.
struct Twins {
  const char* name;
  Fd ours, our_peer;
  BareFd bare, bare_peer;
};

Twins UnixTwins(int type) {
  Twins twins{.name = type == SOCK_STREAM ? "Unix stream" : "Unix datagrams",
              .ours = {},
              .our_peer = {},
              .bare = BareFd(),
              .bare_peer = BareFd()};
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, type, 0, fds) == 0);
  twins.ours.reset(fds[0]);
  twins.our_peer.reset(fds[1]);
  REQUIRE(syscall(SYS_socketpair, AF_UNIX, type, 0, fds) == 0);
  twins.bare = BareFd(fds[0]);
  twins.bare_peer = BareFd(fds[1]);
  return twins;
}

Twins UdpTwins() {
  Twins twins{.name = "UDP",
              .ours = Fd(socket(AF_INET, SOCK_DGRAM, 0)),
              .our_peer = {},
              .bare = BareFd(syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0)),
              .bare_peer = BareFd()};
  // Each is connected to itself.
  for (const int fd : {twins.ours.get(), twins.bare.get()}) {
    Address address = Loopback(AF_INET);
    REQUIRE(syscall(SYS_bind, fd, address.get(), address.length) == 0);
    REQUIRE(syscall(SYS_getsockname, fd, address.get(), &address.length) == 0);
    REQUIRE(syscall(SYS_connect, fd, address.get(), address.length) == 0);
  }
  return twins;
}

Twins PipeTwins() {
  Twins twins{.name = "pipe", .ours = {}, .our_peer = {}, .bare = BareFd(), .bare_peer = BareFd()};
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  twins.our_peer.reset(fds[0]);
  twins.ours.reset(fds[1]);
  REQUIRE(syscall(SYS_pipe2, fds, 0) == 0);
  twins.bare_peer = BareFd(fds[0]);
  twins.bare = BareFd(fds[1]);
  return twins;
}

Twins FileTwins() {
  Twins twins{.name = "file",
              .ours = Fd(memfd_create("ours", 0)),
              .our_peer = {},
              .bare = BareFd(syscall(SYS_memfd_create, "bare", 0)),
              .bare_peer = BareFd()};
  REQUIRE(twins.ours >= 0);
  return twins;
}

// `result` of each kind of bad memory, for who reads a failure.
std::string Answers(const Twins& twins, const Case& one, Bad bad, const Memory& memory, int our_epoll,
                    int bare_epoll, int file, bool bare) {
  const What what{.bare = bare,
                  .fd = bare ? twins.bare.get() : twins.ours.get(),
                  .epoll = bare ? bare_epoll : our_epoll,
                  .file = file,
                  .bad = bad,
                  .memory = memory};
  // What there is to receive: of datagrams a call that fails may take one.
  const int peer = bare ? twins.bare_peer.get() : twins.our_peer.get();
  if (peer >= 0) {
    if (bare) {
      syscall(SYS_sendto, peer, "data", 4, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
    } else {
      send(peer, "data", 4, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (strcmp(twins.name, "TCP") == 0) REQUIRE(WaitFor(twins.ours, POLLIN));
    }
  }
  errno = 0;
  const long result = one.call(what);
  return result < 0 ? strerrorname_np(errno) : std::to_string(result);
}

void Compare(const Twins& twins) {
  const Memory memory;
  Fd epoll(epoll_create1(0));
  BareFd bare_epoll(syscall(SYS_epoll_create1, 0));
  Fd file(open("/proc/self/exe", O_RDONLY));
  for (const Case& one : kCalls) {
    for (const Bad bad : {Bad::kNull, Bad::kLast, Bad::kFirstPage, Bad::kUnmapped, Bad::kHalf}) {
      CAPTURE(twins.name, one.name, kNames[static_cast<int>(bad)]);
      const std::string mine = Answers(twins, one, bad, memory, epoll, bare_epoll.get(), file, false);
      std::string theirs = Answers(twins, one, bad, memory, epoll, bare_epoll.get(), file, true);
      // Of what is half there TCP may take the beginning, where it has begun a piece of memory of its own.
      const bool may_take_part =
          bad == Bad::kHalf && strcmp(twins.name, "TCP") == 0 && mine == "EFAULT" && isdigit(theirs[0]);
      if (may_take_part) theirs = mine;
      REQUIRE(mine == theirs);
    }
  }
}

// The library has something to do: a process without sockets of its own is handed through.
struct Busy {
  Pair pair = MakePair();
};

TEST_CASE("bad memory: Unix sockets") {
  if (kUnderSanitizer) return Impossible(why::kInterceptors);
  const Busy busy;
  Twins twins = UnixTwins(GENERATE(SOCK_STREAM, SOCK_DGRAM));
  for (const int fd : {twins.ours.get(), twins.bare.get()}) REQUIRE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  Compare(twins);
}

TEST_CASE("bad memory: UDP sockets") {
  if (kUnderSanitizer) return Impossible(why::kInterceptors);
  const Busy busy;
  Twins twins = UdpTwins();
  for (const int fd : {twins.ours.get(), twins.bare.get()}) REQUIRE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  Compare(twins);
}

TEST_CASE("bad memory: pipes and files") {
  if (kUnderSanitizer) return Impossible(why::kInterceptors);
  const Busy busy;
  Compare(GENERATE(true, false) ? PipeTwins() : FileTwins());
}

TEST_CASE("bad memory: connections, which live on") {
  if (kUnderSanitizer) return Impossible(why::kInterceptors);
  Pair pair = MakePair();
  BarePair bare = BareConnection(AF_INET, BareSocket(AF_INET));
  Twins twins{.name = "TCP",
              .ours = std::move(pair.client),
              .our_peer = std::move(pair.server),
              .bare = std::move(bare.client),
              .bare_peer = std::move(bare.server)};
  SetNonblocking(twins.ours);
  REQUIRE(fcntl(twins.bare.get(), F_SETFL, O_NONBLOCK) == 0);
  Compare(twins);
  // Nothing of all that was sent but what each call has told.
  REQUIRE(SendAll(twins.ours, "whole"));
  std::string seen = ReceiveExactly(twins.our_peer, 5);
  while (seen.ends_with("whole") == false) seen += ReceiveExactly(twins.our_peer, 1);
  Drain(twins.ours);
  REQUIRE(SendAll(twins.our_peer, "back"));
  REQUIRE(ReceiveExactly(twins.ours, 4) == "back");
}

// Kernel and library move them in different ways.
TEST_CASE("bad memory: sends of every length that begin well, or end well") {
  if (kUnderSanitizer) return Impossible(why::kInterceptors);
  const bool blocking = GENERATE(true, false);
  Pair pair = MakePair();
  SetNonblocking(pair.client, !blocking);
  for (const size_t size :
       {size_t{2}, size_t{100}, size_t{1024}, size_t{1026}, size_t{4096}, size_t{70'000}, size_t{400'000}}) {
    CAPTURE(size, blocking);
    const size_t half = (size / 2 + kPage - 1) / kPage * kPage;
    auto* const memory = static_cast<char*>(
        mmap(nullptr, 3 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory != MAP_FAILED);
    REQUIRE(mprotect(memory + half, half, PROT_NONE) == 0);
    char* const ends_badly = memory + half - size / 2;
    char* const begins_badly = memory + 2 * half - size / 2;
    memset(memory, 'x', half);
    // The kernel may take the beginning of a long one; then it is sent.
    const auto taken = [&](ssize_t result) {
      if (result < 0) REQUIRE(errno == EFAULT);
      REQUIRE(result <= static_cast<ssize_t>(size / 2));
      if (result > 0)
        REQUIRE(ReceiveExactly(pair.server, static_cast<size_t>(result)) ==
                std::string(static_cast<size_t>(result), 'x'));
    };
    taken(send(pair.client, ends_badly, size, 0));
    taken(write(pair.client, ends_badly, size));
    const iovec two[] = {{memory + half - size / 2, size / 2}, {memory + half, size / 2}};
    taken(writev(pair.client, two, 2));
    REQUIRE_ERRNO(send(pair.client, begins_badly, size, 0), EFAULT);
    const iovec swapped[] = {two[1], two[0]};
    REQUIRE_ERRNO(writev(pair.client, swapped, 2), EFAULT);
    REQUIRE(SendAll(pair.client, "whole"));
    REQUIRE(ReceiveExactly(pair.server, 5) == "whole");
    REQUIRE(munmap(memory, 3 * half) == 0);
  }
}

TEST_CASE("bad memory: a receive that has room for a part") {
  if (kUnderSanitizer) return Impossible(why::kInterceptors);
  Pair pair = MakePair();
  const bool peek = GENERATE(true, false);
  const Memory memory;
  char* const room = memory.At<char>(Bad::kHalf, 2000);  // 1000 bytes are there
  const int flags = peek ? MSG_PEEK : 0;
  REQUIRE(SendAll(pair.server, std::string(500, 'a')));
  REQUIRE(WaitFor(pair.client, POLLIN));
  REQUIRE(recv(pair.client, room, 2000, flags) == 500);  // no more has come
  if (peek) REQUIRE(ReceiveExactly(pair.client, 500) == std::string(500, 'a'));
  const std::string much = Pattern(1500);
  REQUIRE(SendAll(pair.server, much));
  REQUIRE(Eventually([&] {
    int there = 0;
    REQUIRE(ioctl(pair.client, FIONREAD, &there) == 0);
    return there == 1500;
  }));
  REQUIRE_ERRNO(recv(pair.client, room, 2000, flags), EFAULT);
  const iovec two[] = {{room, 1000}, {room + 1000, 1000}};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(two);
  message.msg_iovlen = 2;
  REQUIRE_ERRNO(recvmsg(pair.client, &message, flags), EFAULT);
  REQUIRE(ReceiveExactly(pair.client, 1500) == much);  // nothing was taken
}

TEST_CASE("bad memory: a receive into memory that may only be read") {
  if (kUnderSanitizer) return Impossible(why::kInterceptors);
  Pair pair = MakePair();
  auto* const memory =
      static_cast<char*>(mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  REQUIRE(SendAll(pair.server, "kept"));
  REQUIRE(WaitFor(pair.client, POLLIN));
  REQUIRE_ERRNO(recv(pair.client, memory, 10, 0), EFAULT);
  REQUIRE(ReceiveExactly(pair.client, 4) == "kept");
  REQUIRE(send(pair.client, memory, 10, 0) == 10);  // it may be read
  REQUIRE(ReceiveExactly(pair.server, 10) == std::string(10, '\0'));
  munmap(memory, kPage);
}

TEST_CASE("bad memory: programs to be executed, and what clone3 and seccomp are told") {
  if (kUnderSanitizer) return Impossible(why::kInterceptors);
  Pair pair = MakePair();
  const Bad bad = GENERATE(Bad::kNull, Bad::kLast, Bad::kFirstPage, Bad::kUnmapped);
  const Memory memory;
  CAPTURE(kNames[static_cast<int>(bad)]);
  char name[] = "/bin/true";
  char* arguments[] = {name, nullptr};
  const auto child = [&](auto call) { return Child([&] { return call() == -1 ? errno : -1; }); };
  REQUIRE(
      ExitedWith(Reap(child([&] { return execve(memory.At<char>(bad), arguments, arguments); })), EFAULT));
  if (bad != Bad::kNull) {  // an environment of nothing is one
    REQUIRE(ExitedWith(Reap(child([&] { return execve(name, arguments, memory.At<char*>(bad)); })), EFAULT));
    char* environment[] = {memory.At<char>(bad), nullptr};
    REQUIRE(ExitedWith(Reap(child([&] { return execve(name, arguments, environment); })), EFAULT));
    pid_t pid = 0;
    REQUIRE(posix_spawn(&pid, name, nullptr, nullptr, arguments, memory.At<char*>(bad)) == EFAULT);
    REQUIRE_ERRNO(syscall(SYS_clone3, memory.At<clone_args>(bad), sizeof(clone_args)), EFAULT);
  }
  pid_t pid = 0;
  REQUIRE(posix_spawn(&pid, memory.At<char>(bad), nullptr, nullptr, arguments, environ) == EFAULT);
  REQUIRE_ERRNO(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, memory.At<sock_fprog>(bad)), EFAULT);
  sock_fprog program{.len = 3, .filter = memory.At<sock_filter>(bad, 3 * sizeof(sock_filter))};
  const auto confine = [&] {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -2L;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
  };
  REQUIRE(ExitedWith(Reap(child(confine)), bad == Bad::kNull ? EINVAL : EFAULT));
  REQUIRE(SendAll(pair.client, "whole"));
  REQUIRE(ReceiveExactly(pair.server, 5) == "whole");
}

}  // namespace
}  // namespace posix_test
