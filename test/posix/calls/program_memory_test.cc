// Addresses that are none, and sets that are shorter than their call says.
#include <aio.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"
#include "test/posix/twins.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

// Null, and what programs have instead of an address that they do not know. Not to the compiler: it believes
// the declarations.
template <typename T>
T* Nowhere(bool is_null) {
  volatile uintptr_t address = is_null ? 0 : ~uintptr_t{0};
  return reinterpret_cast<T*>(address);
}

TEST_CASE("memory: what is sent from nowhere") {
  const bool is_null = GENERATE(true, false);
  Pair pair = MakePair();
  char* const nowhere = Nowhere<char>(is_null);
  REQUIRE_ERRNO(send(pair.client, nowhere, 10, 0), EFAULT);
  REQUIRE_ERRNO(write(pair.client, nowhere, 10), EFAULT);
  REQUIRE_ERRNO(sendto(pair.client, nowhere, 10, 0, nullptr, 0), EFAULT);
  const iovec one{nowhere, 10};
  REQUIRE_ERRNO(writev(pair.client, &one, 1), EFAULT);
  REQUIRE_ERRNO(writev(pair.client, Nowhere<iovec>(is_null), 1), EFAULT);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(&one);
  message.msg_iovlen = 1;
  REQUIRE_ERRNO(sendmsg(pair.client, &message, 0), EFAULT);
  message.msg_iov = Nowhere<iovec>(is_null);
  REQUIRE_ERRNO(sendmsg(pair.client, &message, 0), EFAULT);
  REQUIRE_ERRNO(sendmsg(pair.client, Nowhere<msghdr>(is_null), 0), EFAULT);
  REQUIRE_ERRNO(sendmmsg(pair.client, Nowhere<mmsghdr>(is_null), 1, 0), EFAULT);
  if (!is_null) REQUIRE_ERRNO(sendto(pair.client, "x", 1, 0, Nowhere<sockaddr>(false), 16), EFAULT);
  if (is_null) REQUIRE(send(pair.client, nowhere, 0, 0) == 0);
  if (!is_null) REQUIRE_ERRNO(send(pair.client, nowhere, 0, 0), EFAULT);
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE(SendAll(pair.client, "whole"));
  REQUIRE(ReceiveExactly(pair.server, 5) == "whole");
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE_ERRNO(send(pair.client, nowhere, 10, MSG_NOSIGNAL), is_null ? EPIPE : EFAULT);
  REQUIRE(writev(pair.client, &one, 0) == 0);
}

TEST_CASE("memory: what is received to nowhere") {
  const bool is_null = GENERATE(true, false);
  Pair pair = MakePair();
  char* const nowhere = Nowhere<char>(is_null);
  REQUIRE_ERRNO(recv(pair.server, nowhere, 10, MSG_DONTWAIT), is_null ? EAGAIN : EFAULT);
  REQUIRE(SendAll(pair.client, "kept"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE_ERRNO(recv(pair.server, nowhere, 10, 0), EFAULT);
  REQUIRE_ERRNO(recv(pair.server, nowhere, 10, MSG_PEEK), EFAULT);
  REQUIRE_ERRNO(read(pair.server, nowhere, 10), EFAULT);
  const iovec one{nowhere, 10};
  REQUIRE_ERRNO(readv(pair.server, &one, 1), EFAULT);
  REQUIRE_ERRNO(readv(pair.server, Nowhere<iovec>(is_null), 1), EFAULT);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(&one);
  message.msg_iovlen = 1;
  REQUIRE_ERRNO(recvmsg(pair.server, &message, 0), EFAULT);
  message.msg_iov = Nowhere<iovec>(is_null);
  REQUIRE_ERRNO(recvmsg(pair.server, &message, 0), EFAULT);
  REQUIRE_ERRNO(recvmsg(pair.server, Nowhere<msghdr>(is_null), 0), EFAULT);
  REQUIRE_ERRNO(recvmmsg(pair.server, Nowhere<mmsghdr>(is_null), 1, 0, nullptr), EFAULT);
  if (is_null) REQUIRE(recv(pair.server, nowhere, 10, MSG_PEEK | MSG_TRUNC) == 4);  // nothing is written
  char room[8];
  REQUIRE(recv(pair.server, room, sizeof room, 0) == 4);
  REQUIRE(std::string(room, 4) == "kept");
  pair.client.reset();
  if (is_null) REQUIRE(recv(pair.server, nowhere, 10, 0) == 0);
}

TEST_CASE("memory: names, options and waits that are nowhere") {
  if (kUnderAsan || kUnderTsan) return Impossible(why::kInterceptors);
  const bool is_null = GENERATE(true, false);
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  sockaddr_storage room;
  socklen_t length = sizeof room;
  auto* const name = reinterpret_cast<sockaddr*>(&room);
  sockaddr* const nowhere = Nowhere<sockaddr>(is_null);
  REQUIRE_ERRNO(getsockname(pair.client, nowhere, &length), EFAULT);
  REQUIRE_ERRNO(getpeername(pair.client, nowhere, &length), EFAULT);
  REQUIRE_ERRNO(getsockname(pair.client, name, Nowhere<socklen_t>(is_null)), EFAULT);
  REQUIRE_ERRNO(getpeername(pair.client, name, Nowhere<socklen_t>(is_null)), EFAULT);
  int value = 0;
  socklen_t size = sizeof value;
  REQUIRE_ERRNO(getsockopt(pair.client, SOL_SOCKET, SO_ERROR, Nowhere<int>(is_null), &size), EFAULT);
  REQUIRE_ERRNO(getsockopt(pair.client, SOL_SOCKET, SO_RCVLOWAT, &value, Nowhere<socklen_t>(is_null)),
                EFAULT);
  REQUIRE_ERRNO(setsockopt(pair.client, SOL_SOCKET, SO_RCVLOWAT, Nowhere<int>(is_null), sizeof value),
                EFAULT);
  REQUIRE_ERRNO(connect(pair.client, nowhere, 16), EFAULT);
  REQUIRE_ERRNO(poll(Nowhere<pollfd>(is_null), 1, 0), EFAULT);
  Fd ep(epoll_create1(0));
  REQUIRE_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, Nowhere<epoll_event>(is_null)), EFAULT);
  epoll_event event{.events = EPOLLIN, .data = {}};
  REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, pair.server, &event) == 0);
  REQUIRE_ERRNO(epoll_wait(ep, Nowhere<epoll_event>(is_null), 1, kPatienceMs), EFAULT);
  if (!is_null) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair.server, &set);
    REQUIRE_ERRNO(select(pair.server + 1, Nowhere<fd_set>(false), nullptr, nullptr, nullptr), EFAULT);
    // Whom accept cannot name is gone.
    Fd client = TcpSocket();
    REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
    REQUIRE_ERRNO(accept(listener.fd, nowhere, &length), EFAULT);
    REQUIRE(ReceiveToEnd(client).empty());
  }
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  REQUIRE_ERRNO(accept(listener.fd, name, Nowhere<socklen_t>(is_null)), EFAULT);
  REQUIRE(ReceiveToEnd(client).empty());
  REQUIRE(ReceiveExactly(pair.server, 1) == "x");
}

// Some the library answers by itself. 600 bytes: more than any of them tells.
TEST_CASE("memory: every option that is nowhere, or goes there") {
  if (kUnderAsan || kUnderTsan) return Impossible(why::kInterceptors);
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  Fd fresh = TcpSocket();
  BareFd bare_listener = BareListener(AF_INET, BareSocket(AF_INET));
  Address bare_address;
  REQUIRE(syscall(SYS_getsockname, bare_listener.get(), bare_address.get(), &bare_address.length) == 0);
  BareFd bare_fresh = BareSocket(AF_INET);
  BareFd bare_client = BareSocket(AF_INET);
  REQUIRE(syscall(SYS_connect, bare_client.get(), bare_address.get(), bare_address.length) == 0);
  BareFd bare_server(syscall(SYS_accept, bare_listener.get(), nullptr, nullptr));
  const std::pair<int, int> twins[] = {{pair.client, bare_client.get()},
                                       {pair.server, bare_server.get()},
                                       {listener.fd, bare_listener.get()},
                                       {fresh, bare_fresh.get()}};
  static char room[600];
  socklen_t length;
  const auto error_of = [](long result) { return result == 0 ? 0 : errno; };
  for (const auto& [fd, bare] : twins) {
    for (const int level : {SOL_SOCKET, int{IPPROTO_TCP}, int{IPPROTO_IP}, int{IPPROTO_IPV6}}) {
      for (int name = 0; name < 85; ++name) {
        CAPTURE(level, name, fd == listener.fd, fd == fresh);
        for (const bool is_null : {true, false}) {
          socklen_t* const no_length = Nowhere<socklen_t>(is_null);
          char* const nowhere = Nowhere<char>(is_null);
          REQUIRE(error_of(getsockopt(fd, level, name, room, no_length)) ==
                  error_of(syscall(SYS_getsockopt, bare, level, name, room, no_length)));
          const bool is_congestion_control =
              level == IPPROTO_TCP && (name == TCP_CONGESTION || name == TCP_CC_INFO);
          if (!is_congestion_control) {  // what that one tells depends on which it is
            length = sizeof room;
            const int error = error_of(getsockopt(fd, level, name, nowhere, &length));
            length = sizeof room;
            REQUIRE(error == error_of(syscall(SYS_getsockopt, bare, level, name, nowhere, &length)));
          }
          REQUIRE(error_of(setsockopt(fd, level, name, nowhere, 8)) ==
                  error_of(syscall(SYS_setsockopt, bare, level, name, nowhere, 8)));
        }
      }
    }
  }
  REQUIRE(SendAll(pair.client, "whole"));
  REQUIRE(ReceiveExactly(pair.server, 5) == "whole");
}

TEST_CASE("memory: what epoll is to report is nowhere") {
  const bool is_null = GENERATE(true, false);
  Listener listener = Listen();
  Pair pair = ConnectTo(listener);
  Fd ep(epoll_create1(0));
  epoll_event* const nowhere = Nowhere<epoll_event>(is_null);
  for (const int fd : {listener.fd.get(), pair.server.get()}) {
    REQUIRE_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, fd, nowhere), EFAULT);
    REQUIRE_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, fd, nowhere), EFAULT);
    REQUIRE_ERRNO(epoll_ctl(ep, 77, fd, nowhere), EFAULT);
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    REQUIRE(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event) == 0);
    REQUIRE_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, fd, nowhere), EFAULT);
  }
  Fd client = TcpSocket();
  REQUIRE(connect(client, listener.address.get(), listener.address.length) == 0);
  epoll_event event{};
  REQUIRE(epoll_wait(ep, &event, 1, kPatienceMs) == 1);
  REQUIRE(event.data.fd == listener.fd);
  for (const int fd : {listener.fd.get(), pair.server.get()})
    REQUIRE(epoll_ctl(ep, EPOLL_CTL_DEL, fd, nowhere) == 0);
}

TEST_CASE("memory: control messages that are nowhere") {
  if (kUnderAsan) return Impossible(why::kInterceptors);
  const bool is_null = GENERATE(true, false);
  Pair pair = MakePair();
  char byte = 'x';
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = Nowhere<char>(is_null);
  message.msg_controllen = 64;
  REQUIRE_ERRNO(sendmsg(pair.client, &message, 0), EFAULT);
  message.msg_controllen = 0;
  REQUIRE(sendmsg(pair.client, &message, 0) == 1);
  SetOption(pair.server, IPPROTO_TCP, TCP_INQ, 1);
  REQUIRE(WaitFor(pair.server, POLLIN));
  message.msg_controllen = 64;
  REQUIRE(recvmsg(pair.server, &message, 0) == 1);
  REQUIRE(message.msg_controllen == 0);
  REQUIRE((message.msg_flags & MSG_CTRUNC) == (is_null ? MSG_CTRUNC : 0));
  mmsghdr messages{};
  if (!is_null) REQUIRE_ERRNO(recvmmsg(pair.server, &messages, 1, 0, Nowhere<timespec>(false)), EFAULT);
}

constexpr int kDescriptors = 16384;

// False, and said, where they may not be had.
bool AllowDescriptors() {
  const rlimit limit{.rlim_cur = kDescriptors, .rlim_max = kDescriptors};
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return true;
  sdp::test::Skipped(std::string("so many descriptors may not be had: ") + strerror(errno));
  return false;
}

TEST_CASE("memory: select of as many descriptors as there may be, with sets for fewer") {
  if (!AllowDescriptors()) return;
  const bool of_ours = GENERATE(true, false);  // whether a stream is among them
  Pair pair = MakePair();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Fd out(ends[0]), in(ends[1]);
  // The sets end where the program's memory does.
  constexpr size_t kPage = 4096;
  auto* const memory = static_cast<char*>(
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  REQUIRE(mprotect(memory + kPage, kPage, PROT_NONE) == 0);
  auto* const set = reinterpret_cast<fd_set*>(memory + kPage - sizeof(fd_set));
  const int fd = of_ours ? pair.server : out;
  const auto wait = [&](int ms) {
    FD_ZERO(set);
    FD_SET(fd, set);
    timeval time{.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    const int n = select(getdtablesize(), set, nullptr, nullptr, &time);
    return n == 1 && FD_ISSET(fd, set) ? 1 : n;
  };
  REQUIRE(wait(10) == 0);
  REQUIRE(write(of_ours ? pair.client : in, "x", 1) == 1);
  REQUIRE(wait(kPatienceMs) == 1);
  munmap(memory, 2 * kPage);
}

TEST_CASE("memory: select of as many descriptors as there may be, with other memory behind the set",
          "[unconnected]") {
  if (!AllowDescriptors()) return;
  const Fd ep(epoll_create1(EPOLL_CLOEXEC));
  const Fd fd = TcpSocket();
  Pipe pipe;
  struct {
    fd_set set;
    std::array<unsigned char, 4096> behind;
  } memory;
  memory.behind.fill(0xff);
  FD_ZERO(&memory.set);
  FD_SET(pipe.in, &memory.set);
  timeval time{.tv_sec = 0, .tv_usec = 1000};
  REQUIRE(select(getdtablesize(), &memory.set, nullptr, nullptr, &time) == 0);
  REQUIRE(std::all_of(memory.behind.begin(), memory.behind.end(), [](unsigned char c) { return c == 0xff; }));
}

TEST_CASE("memory: select of numbers beyond FD_SETSIZE among many") {
  if (!AllowDescriptors()) return;
  Pair pair = MakePair();
  Fd high(fcntl(pair.server, F_DUPFD_CLOEXEC, 3000));
  REQUIRE(high >= 3000);
  Fd pipe_end(fcntl(pair.client, F_DUPFD_CLOEXEC, 5000));
  std::vector<unsigned long> words(kDescriptors / 64);
  auto* const set = reinterpret_cast<fd_set*>(words.data());
  const auto bit = [](int fd) { return 1ul << (fd % 64); };
  const size_t word = static_cast<size_t>(high) / 64;
  words[word] |= bit(high);
  timeval time{.tv_sec = 0, .tv_usec = 10'000};
  REQUIRE(select(kDescriptors, set, nullptr, nullptr, &time) == 0);
  REQUIRE(SendAll(pair.client, "x"));
  words[word] |= bit(high);
  time = {.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
  REQUIRE(select(kDescriptors, set, nullptr, nullptr, &time) == 1);
  REQUIRE(words[word] == bit(high));
}

TEST_CASE("memory: asynchronous I/O that does not work takes nothing of the connection") {
  Pair pair = MakePair();
  const linger reset{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
  pair.client.reset();
  REQUIRE(WaitFor(pair.server, POLLERR));
  char room[16];
  aiocb request{};
  request.aio_fildes = pair.server;
  request.aio_buf = room;
  request.aio_nbytes = sizeof room;
  if (aio_read(&request) != 0) {
    REQUIRE(errno == ENOSYS);
    REQUIRE_ERRNO(recv(pair.server, room, sizeof room, 0), ECONNRESET);
  } else {
    REQUIRE(Eventually([&] { return aio_error(&request) == ECONNRESET; }));
  }
}

TEST_CASE("memory: asynchronous I/O works, or says that it does not") {
  Pair pair = MakePair();
  char room[16] = {};
  aiocb request{};
  request.aio_fildes = pair.server;
  request.aio_buf = room;
  request.aio_nbytes = sizeof room;
  const int begun = aio_read(&request);
  const int error = begun == 0 ? 0 : errno;
  REQUIRE(SendAll(pair.client, "bytes"));
  if (begun == 0) {
    REQUIRE(Eventually([&] { return aio_error(&request) != EINPROGRESS; }));
    REQUIRE(aio_return(&request) == 5);
  } else {
    REQUIRE(error == ENOSYS);
    REQUIRE(ReceiveExactly(pair.server, 5) == "bytes");
  }
  char data[] = "answer";
  aiocb answer{};
  answer.aio_fildes = pair.server;
  answer.aio_buf = data;
  answer.aio_nbytes = 6;
  answer.aio_lio_opcode = LIO_WRITE;
  aiocb* const list[] = {nullptr, &answer};
  const int listed = lio_listio(LIO_WAIT, list, 2, nullptr);
  REQUIRE((listed == 0 || errno == ENOSYS));
  if (listed != 0) REQUIRE_ERRNO(aio_write(&answer), ENOSYS);
  if (listed != 0) REQUIRE(SendAll(pair.server, "answer"));
  REQUIRE(ReceiveExactly(pair.client, 6) == "answer");
  // Of files as ever.
  Fd file(open("/proc/self/exe", O_RDONLY));
  aiocb header{};
  header.aio_fildes = file;
  header.aio_buf = room;
  header.aio_nbytes = 4;
  REQUIRE(aio_read(&header) == 0);
  REQUIRE(Eventually([&] { return aio_error(&header) != EINPROGRESS; }));
  REQUIRE(aio_return(&header) == 4);
  REQUIRE(std::string(room + 1, 3) == "ELF");
}

}  // namespace
}  // namespace posix_test
