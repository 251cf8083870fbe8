// A process that has shut itself off from most system calls, and goes on using a connection that it
// inherited: what the OpenSSH server does with the one that talks before the log-in. The filter kills at the
// first call that reading, writing, polling and closing do not need.
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cstdlib>
#include <future>
#include <iterator>
#include <span>
#include <vector>

#include "test/posix/processes.h"
#include "test/posix/sanitizers.h"
#include "test/posix/support.h"
#include "test/support/skipped.h"

namespace posix_test {
namespace {

constexpr int kAllowed[] = {
    SYS_brk,          SYS_clock_gettime, SYS_clock_nanosleep, SYS_close,   SYS_exit,
    SYS_exit_group,   SYS_futex,         SYS_geteuid,         SYS_getpgid, SYS_getpid,
    SYS_getrandom,    SYS_gettid,        SYS_gettimeofday,    SYS_getuid,  SYS_madvise,
    SYS_mmap,         SYS_mprotect,      SYS_mremap,          SYS_munmap,  SYS_nanosleep,
    SYS_poll,         SYS_ppoll,         SYS_pselect6,        SYS_read,    SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_select,        SYS_shutdown,        SYS_time,    SYS_write,
};
constexpr int kDenied[] = {SYS_open, SYS_openat, SYS_stat, SYS_fstat, SYS_lstat, SYS_newfstatat};

// A filter may be set by any of these.
enum class By { kPrctl, kSeccomp, kBarePrctl, kSeccompInHalves };

bool SetFilter(const sock_fprog& program, By by) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  switch (by) {
    case By::kPrctl:
      return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    case By::kSeccomp:  // as libseccomp, which asks first
      if (syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, nullptr) != -1 || errno != EINVAL) return false;
      if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, nullptr) != -1 || errno != EFAULT) return false;
      return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
    case By::kSeccompInHalves:  // of the first two arguments the kernel looks at the lower halves alone
      return syscall(SYS_seccomp, (1L << 40) + SECCOMP_SET_MODE_FILTER, 1L << 32, &program) == 0;
    case By::kBarePrctl:
      return syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
  }
  return false;
}

bool Forgo() {
  for (const int resource : {RLIMIT_FSIZE, RLIMIT_NPROC}) {
    const rlimit none{0, 0};
    if (setrlimit(static_cast<__rlimit_resource_t>(resource), &none) != 0) return false;
  }
  const rlimit one{1, 1};
  return setrlimit(RLIMIT_NOFILE, &one) == 0;
}

bool Filter(std::span<const int> allowed, const std::vector<int>& also_allowed, By by) {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr))};
  const auto answer = [&](int number, uint32_t what) {
    filter.push_back(BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, static_cast<uint32_t>(number), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET + BPF_K, what));
  };
  for (const int number : allowed) answer(number, SECCOMP_RET_ALLOW);
  for (const int number : also_allowed) answer(number, SECCOMP_RET_ALLOW);
  for (const int number : kDenied) answer(number, SECCOMP_RET_ERRNO | EACCES);
  filter.push_back(BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS));
  return SetFilter({static_cast<unsigned short>(filter.size()), filter.data()}, by);
}

bool Confine(const std::vector<int>& also_allowed = {}, By by = By::kPrctl) {
  return Forgo() && Filter(kAllowed, also_allowed, by);
}

bool WriteAll(int fd, const char* bytes, ssize_t count) {
  while (count > 0) {
    pollfd room{fd, POLLOUT, 0};
    if (poll(&room, 1, kPatienceMs) != 1) return false;
    const ssize_t n = write(fd, bytes, static_cast<size_t>(count));
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0) bytes += n, count -= n;
  }
  return true;
}

// What such a program does with its descriptor: it sleeps in poll, reads and writes. The sum of what it read.
bool Echo(int fd, size_t size) {
  char buffer[20'000];
  while (size > 0) {
    pollfd wait{fd, POLLIN, 0};
    if (poll(&wait, 1, kPatienceMs) != 1) return false;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0 || !WriteAll(fd, buffer, n)) return false;
    size -= static_cast<size_t>(n);
  }
  return true;
}

std::string Exchange(int fd, const std::string& data) {
  auto sender = std::async(std::launch::async, [&] { return SendAll(fd, data); });
  std::string back = ReceiveExactly(fd, data.size());
  REQUIRE(sender.get());
  return back;
}

void ServeConfined(bool nonblocking, bool by_exit, By by = By::kPrctl) {
  Pair pair = MakePair();
  SetNonblocking(pair.server, nonblocking);
  const std::string data = Pattern(300'000);
  const pid_t pid = Child([&] {
    pair.client.reset();
    if (!Confine({}, by)) return 1;
    const int result = Echo(pair.server, data.size()) ? 0 : 2;
    if (by_exit) exit(result);
    return result;
  });
  REQUIRE(Exchange(pair.client, data) == data);
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
  // Whoever has it still goes on with it.
  REQUIRE(SendAll(pair.client, "more"));
  REQUIRE(ReceiveExactly(pair.server, 4) == "more");
  REQUIRE(SendAll(pair.server, "answer"));
  REQUIRE(ReceiveExactly(pair.client, 6) == "answer");
}

TEST_CASE("confinement: a child behind a seccomp filter talks and its parent goes on") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  ServeConfined(/*nonblocking=*/true, /*by_exit=*/false);
}

TEST_CASE("confinement: a child behind a seccomp filter talks on a blocking socket") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  ServeConfined(/*nonblocking=*/false, /*by_exit=*/false);
}

TEST_CASE("confinement: a child behind a seccomp filter may leave by exit") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  ServeConfined(/*nonblocking=*/true, /*by_exit=*/true);
}

TEST_CASE("confinement: a child whose seccomp filter is set by a system call of its own") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  ServeConfined(/*nonblocking=*/GENERATE(false, true), /*by_exit=*/true,
                GENERATE(By::kSeccomp, By::kBarePrctl, By::kSeccompInHalves));
}

// To find a way other than TCP's would take calls that the filter does not know.
TEST_CASE("confinement: a process behind a seccomp filter makes connections", "[plain]") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  const bool made_before = GENERATE(true, false);
  const By by = GENERATE(By::kPrctl, By::kSeccomp);
  const pid_t pid = Child([&] {
    Fd sockets[3];
    const auto make = [&] {
      for (Fd& fd : sockets) fd.reset(socket(AF_INET, SOCK_STREAM, 0));
    };
    if (made_before) make();
    if (!Filter(kAllowed,
                {SYS_socket, SYS_bind, SYS_listen, SYS_connect, SYS_accept, SYS_getsockname, SYS_fcntl}, by))
      return 1;
    if (!made_before) make();
    Address address = Loopback(AF_INET);
    if (bind(sockets[0], address.get(), address.length) != 0 || listen(sockets[0], 8) != 0) return 2;
    address = LocalOf(sockets[0]);
    for (Fd* const client : {&sockets[1], &sockets[2]}) {
      const bool blocks = client == &sockets[1];
      if (!blocks && fcntl(*client, F_SETFL, O_NONBLOCK) != 0) return 3;
      if (connect(*client, address.get(), address.length) != 0 && (blocks || errno != EINPROGRESS)) return 4;
      Fd server(accept(sockets[0], nullptr, nullptr));
      char c = 0;
      if (!WriteAll(*client, "x", 1) || read(server, &c, 1) != 1 || c != 'x') return 5;
      if (write(server, "y", 1) != 1) return 6;
      pollfd answer{*client, POLLIN, 0};
      if (poll(&answer, 1, kPatienceMs) != 1 || read(*client, &c, 1) != 1 || c != 'y') return 7;
    }
    return 0;
  });
  const int status = Reap(pid);
  CAPTURE(made_before, status);
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("confinement: a process behind a seccomp filter has a connection for itself") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  const std::string data = Pattern(300'000);
  const pid_t pid = Child([&] {
    pair.client.reset();
    // The parent has let go of it when this comes.
    if (ReceiveExactly(pair.server, 1) != "x") return 3;
    if (!Confine()) return 1;
    return Echo(pair.server, data.size()) ? 0 : 2;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(Exchange(pair.client, data) == data);
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

// Such a program waits by one call, and its filter knows no other.
TEST_CASE("confinement: a child behind a seccomp filter waits by epoll, and registers there") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  const int call = GENERATE(int{SYS_epoll_wait}, int{SYS_epoll_pwait}, int{SYS_epoll_pwait2});
  Pair pair = MakePair();
  SetNonblocking(pair.server);
  const std::string data = Pattern(300'000);
  const pid_t pid = Child([&] {
    pair.client.reset();
    int pipe_ends[2];
    const int set = epoll_create1(0);
    epoll_event event{.events = EPOLLIN, .data = {.fd = pair.server}};
    if (set < 0 || pipe(pipe_ends) != 0 || epoll_ctl(set, EPOLL_CTL_ADD, pair.server, &event) != 0) return 1;
    if (!Confine({SYS_epoll_ctl, call})) return 2;
    event.data.fd = pipe_ends[0];
    if (epoll_ctl(set, EPOLL_CTL_ADD, pipe_ends[0], &event) != 0) return 3;
    const auto wait = [&] {
      const timespec patience{.tv_sec = kPatienceMs / 1000, .tv_nsec = 0};
      const int n = call == SYS_epoll_wait    ? epoll_wait(set, &event, 1, kPatienceMs)
                    : call == SYS_epoll_pwait ? epoll_pwait(set, &event, 1, kPatienceMs, nullptr)
                                              : epoll_pwait2(set, &event, 1, &patience, nullptr);
      return n == 1 ? event.data.fd : -1;
    };
    if (write(pipe_ends[1], "x", 1) != 1) return 4;
    int rounds = 0;  // the peer's data may be there already
    while (wait() != pipe_ends[0]) {
      if (++rounds == 100) return 9;
    }
    char buffer[20'000];
    if (read(pipe_ends[0], buffer, 1) != 1) return 5;
    for (size_t left = data.size(); left > 0;) {
      if (wait() != pair.server) return 6;
      const ssize_t n = read(pair.server, buffer, sizeof buffer);
      if (n < 0 && errno == EAGAIN) continue;
      if (n <= 0) return 7;
      if (!WriteAll(pair.server, buffer, n)) return 8;
      left -= static_cast<size_t>(n);
    }
    return 0;
  });
  REQUIRE(Exchange(pair.client, data) == data);
  const int status = Reap(pid);
  CAPTURE(call, status);
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("confinement: a filter that forbids what no socket needs") {
  const pid_t pid = Child([] {
    sock_filter filter[] = {BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr)),
                            BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, SYS_mount, 0, 1),
                            BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS),
                            BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ALLOW)};
    Pair before = MakePair();
    if (!SetFilter({std::size(filter), filter}, By::kSeccomp)) return 1;
    Pair behind = MakePair();
    for (const Pair* const pair : {&before, &behind}) {
      if (!SendAll(pair->client, "word") || ReceiveExactly(pair->server, 4) != "word") return 2;
    }
    return 0;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// None would be allowed anything.
TEST_CASE("confinement: a filter that the kernel refuses changes nothing", "[carried]") {
  const int reason = GENERATE(int{EACCES}, int{EINVAL});
  const By by = GENERATE(By::kPrctl, By::kSeccomp);
  if (reason == EACCES && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
    return sdp::test::SkippedInPart("this process has no_new_privs, and may set any filter");
  const pid_t pid = Child([&] {
    Listener listener = Listen();
    Fd client = TcpSocket();
    sock_filter filter[] = {
        BPF_STMT(BPF_LD + (reason == EINVAL ? BPF_B : BPF_W) + BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS)};
    const sock_fprog program = {std::size(filter), filter};
    __user_cap_header_struct self{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
    if (syscall(SYS_capset, &self, none) != 0) return 1;
    if (reason == EINVAL && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 2;
    const long result = by == By::kPrctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
                                         : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    if (result != -1 || errno != reason) return 3;
    if (connect(client, listener.address.get(), listener.address.length) != 0) return 4;
    Fd server(accept(listener.fd, nullptr, nullptr));
    return SendAll(client, "word") && ReceiveExactly(server, 4) == "word" ? 0 : 5;
  });
  const int status = Reap(pid);
  CAPTURE(reason, status);
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE(
    "confinement: a filter for all threads that one of them cannot have leaves the sockets to come alone",
    "[carried]") {
  const pid_t pid = Child([] {
    sock_filter all[] = {BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ALLOW)};
    sock_filter none[] = {BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS)};
    const sock_fprog for_one = {std::size(all), all}, for_all = {std::size(none), none};
    Pipe set, over;
    auto one = Async([&] {
      const bool good = SetFilter(for_one, By::kSeccomp);
      return write(set.out, "x", 1) == 1 && over.Hear() && good;
    });
    if (!set.Hear() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &for_all) <= 0) return 2;
    Pair pair = MakePair();
    if (!SendAll(pair.client, "word") || ReceiveExactly(pair.server, 4) != "word") return 3;
    over.Tell();
    return one.get() ? 0 : 4;
  });
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

// What any program needs that has memory and comes to an end.
constexpr int kAllPrograms[] = {SYS_brk,        SYS_clock_gettime, SYS_clock_nanosleep, SYS_close,
                                SYS_exit_group, SYS_futex,         SYS_madvise,         SYS_mmap,
                                SYS_mprotect,   SYS_mremap,        SYS_munmap,          SYS_rt_sigreturn};

// How a program does what it does, each by one call that its filter knows, and no other.
struct Manner {
  const char* name;
  bool blocks;
  std::vector<int> calls;
  bool (*waits)(int fd, int set, short events);
  ssize_t (*reads)(int fd, char* room, size_t size);
  ssize_t (*writes)(int fd, const char* data, size_t size);
};

bool WaitsByPoll(int fd, int, short events) {
  pollfd one{fd, events, 0};
  return poll(&one, 1, kPatienceMs) == 1;
}
bool WaitsByPpoll(int fd, int, short events) {
  pollfd one{fd, events, 0};
  const timespec patience{.tv_sec = kPatienceMs / 1000, .tv_nsec = 0};
  return ppoll(&one, 1, &patience, nullptr) == 1;
}
bool WaitsBySelect(int fd, int, short events) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
  return select(fd + 1, events == POLLIN ? &set : nullptr, events == POLLOUT ? &set : nullptr, nullptr,
                &patience) == 1;
}
bool WaitsByEpoll(int fd, int set, short events) {
  epoll_event event{.events = static_cast<uint32_t>(events), .data = {}};
  return epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0 && epoll_wait(set, &event, 1, kPatienceMs) == 1;
}

ssize_t Reads(int fd, char* room, size_t size) { return read(fd, room, size); }
ssize_t Readvs(int fd, char* room, size_t size) {
  const iovec piece{room, size};
  return readv(fd, &piece, 1);
}
ssize_t Recvs(int fd, char* room, size_t size) { return recv(fd, room, size, 0); }
ssize_t Recvmsgs(int fd, char* room, size_t size) {
  iovec piece{room, size};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  return recvmsg(fd, &message, 0);
}
ssize_t Writes(int fd, const char* data, size_t size) { return write(fd, data, size); }
ssize_t Writevs(int fd, const char* data, size_t size) {
  const iovec piece{const_cast<char*>(data), size};
  return writev(fd, &piece, 1);
}
ssize_t Sends(int fd, const char* data, size_t size) { return send(fd, data, size, MSG_NOSIGNAL); }
ssize_t Sendmsgs(int fd, const char* data, size_t size) {
  iovec piece{const_cast<char*>(data), size};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  return sendmsg(fd, &message, 0);
}

const Manner kManners[] = {
    {"poll, read, write", true, {SYS_poll, SYS_read, SYS_write}, WaitsByPoll, Reads, Writes},
    {"poll, recv, send", true, {SYS_poll, SYS_recvfrom, SYS_sendto}, WaitsByPoll, Recvs, Sends},
    {"poll, recvmsg, sendmsg", true, {SYS_poll, SYS_recvmsg, SYS_sendmsg}, WaitsByPoll, Recvmsgs, Sendmsgs},
    {"select, read, write",
     true,
     {SYS_select, SYS_pselect6, SYS_read, SYS_write},
     WaitsBySelect,
     Reads,
     Writes},
    {"select, recv, writev",
     false,
     {SYS_select, SYS_pselect6, SYS_recvfrom, SYS_writev},
     WaitsBySelect,
     Recvs,
     Writevs},
    {"ppoll, readv, writev", true, {SYS_ppoll, SYS_readv, SYS_writev}, WaitsByPpoll, Readvs, Writevs},
    {"epoll, read, write",
     false,
     {SYS_epoll_ctl, SYS_epoll_wait, SYS_read, SYS_write},
     WaitsByEpoll,
     Reads,
     Writes},
    {"epoll, recv, sendmsg",
     false,
     {SYS_epoll_ctl, SYS_epoll_wait, SYS_recvfrom, SYS_sendmsg},
     WaitsByEpoll,
     Recvs,
     Sendmsgs},
};

// 0: all came and went back.
int EchoIn(const Manner& manner, int fd, int set, size_t size) {
  char buffer[20'000];
  while (size > 0) {
    if (!manner.waits(fd, set, POLLIN)) return 2;
    const ssize_t n = manner.reads(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) return 3;
    for (ssize_t sent = 0; sent < n;) {
      if (!manner.waits(fd, set, POLLOUT)) return 4;
      const ssize_t m = manner.writes(fd, buffer + sent, static_cast<size_t>(n - sent));
      if (m < 0 && errno != EAGAIN) return 5;
      if (m > 0) sent += m;
    }
    size -= static_cast<size_t>(n);
  }
  return close(fd) == 0 ? 0 : 6;
}

TEST_CASE("confinement: a filter that knows just the calls that a program makes") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  const bool shared = GENERATE(true, false);
  const size_t which = GENERATE(range(size_t{0}, std::size(kManners)));
  const Manner& manner = kManners[which];
  Pair pair = MakePair();
  SetNonblocking(pair.server, !manner.blocks);
  const std::string data = Pattern(300'000);
  const pid_t pid = Child([&] {
    pair.client.reset();
    const int fd = pair.server.release();
    const int set = epoll_create1(0);
    epoll_event event{.events = EPOLLIN, .data = {}};
    if (set < 0 || (manner.waits == WaitsByEpoll && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0))
      return 10;
    // Its first word, as it will go on. The parent has let go of it when this comes.
    if (!manner.waits(fd, set, POLLIN)) return 11;
    char first = 0;
    if (manner.reads(fd, &first, 1) != 1 || first != 'x') return 12;
    if (!Filter(kAllPrograms, manner.calls, By::kPrctl)) return 1;
    return EchoIn(manner, fd, set, data.size());
  });
  if (!shared) pair.server.reset();
  REQUIRE(SendAll(pair.client, "x"));
  const std::string back = Exchange(pair.client, data);
  const int status = Reap(pid);
  CAPTURE(manner.name, shared, status);
  REQUIRE(ExitedWith(status, 0));
  REQUIRE(back == data);
  if (!shared) return;
  REQUIRE(SendAll(pair.client, "more"));
  REQUIRE(ReceiveExactly(pair.server, 4) == "more");
}

TEST_CASE("confinement: who ignores SIGPIPE has EPIPE behind a filter that forbids to raise it") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  Pair pair = MakePair();
  Pipe has_read;
  const pid_t pid = Child([&] {
    pair.client.reset();
    signal(SIGPIPE, SIG_IGN);
    char c;
    if (recv(pair.server, &c, 1, 0) != 1 || write(has_read.out, &c, 1) != 1) return 1;
    if (!Filter(kAllPrograms, {SYS_poll, SYS_recvfrom, SYS_sendto, SYS_close}, By::kPrctl)) return 2;
    if (!WaitsByPoll(pair.server, -1, POLLIN)) return 3;
    if (recv(pair.server, &c, 1, 0) != -1 || errno != ECONNRESET) return 4;
    return send(pair.server, &c, 1, 0) == -1 && errno == EPIPE ? 0 : 5;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(has_read.Hear());
  const linger reset{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
  pair.client.reset();
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("confinement: a child that may have no descriptors sleeps in receives of a connection it shares") {
  Pair pair = MakePair();
  const pid_t pid = Child([&] {
    pair.client.reset();
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
    for (int round = 0; round < 3; ++round) {
      char c = 0;
      if (recv(pair.server, &c, 1, MSG_PEEK) != 1 || recv(pair.server, &c, 1, 0) != 1) return 2;
      if (send(pair.server, &c, 1, 0) != 1) return 3;
    }
    return 0;
  });
  for (const char* word : {"a", "b", "c"}) {
    REQUIRE(PollOne(pair.client, POLLIN, kQuietMs) == 0);  // it sleeps
    REQUIRE(SendAll(pair.client, word));
    REQUIRE(ReceiveExactly(pair.client, 1) == word);
  }
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

TEST_CASE("confinement: a child that may write no files is not ended for what there is to tell") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  Pair pair = MakePair();
  Pipe has_read;
  const pid_t pid = Child([&] {
    pair.client.reset();
    if (!Confine()) return 1;
    char c;
    if (read(pair.server, &c, 1) != 1 || write(has_read.out, &c, 1) != 1) return 2;
    if (!WaitsByPoll(pair.server, -1, POLLIN)) return 3;
    return read(pair.server, &c, 1) == -1 && errno == ECONNRESET ? 0 : 4;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "x"));
  REQUIRE(has_read.Hear());
  const linger reset{.l_onoff = 1, .l_linger = 0};
  REQUIRE(setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
  pair.client.reset();
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// The kernel that this process sees, as a sandbox around it may show it, has no epoll_pwait2. The library
// does not hear of a bare system call.
bool ForgetPwait2() {
#ifdef __x86_64__
  sock_filter filter[] = {
      BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, SYS_epoll_pwait2, 0, 1),
      BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  long result = SYS_seccomp;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(SECCOMP_SET_MODE_FILTER), "S"(0), "d"(&program)
               : "rcx", "r11", "memory");
  return result == 0;
#else
  return false;
#endif
}

TEST_CASE("confinement: a process in a sandbox that does not know epoll_pwait2 waits by epoll") {
  if (kUnderSanitizer) return Impossible(why::kFilter);
  Pair pair = MakePair();
  const std::string data = Pattern(300'000);
  const pid_t pid = Child([&] {
    pair.client.reset();
    const int fd = pair.server.release();
    SetNonblocking(fd, true);
    if (!ForgetPwait2()) return 9;
    const int set = epoll_create1(0);
    epoll_event event{.events = EPOLLIN, .data = {}};
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) return 10;
    if (epoll_wait(set, &event, 1, 20) != 0) return 11;
    if (!WriteAll(fd, "x", 1)) return 12;
    return EchoIn({"epoll, read, write", false, {}, WaitsByEpoll, Reads, Writes}, fd, set, data.size());
  });
  pair.server.reset();
  REQUIRE(ReceiveExactly(pair.client, 1) == "x");
  REQUIRE(Exchange(pair.client, data) == data);
  const int status = Reap(pid);
  CAPTURE(status);
  REQUIRE(ExitedWith(status, 0));
}

}  // namespace
}  // namespace posix_test
