// A process that has shut itself off from most system calls, and goes on using a connection that it
// inherited: what the OpenSSH server does with the one that talks before the log-in. The filter kills at the
// first call that reading, writing, polling and closing do not need.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <future>
#include <vector>

#include "test/posix/support.h"

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

bool Confine(const std::vector<int>& also_allowed = {}) {
  for (const int resource : {RLIMIT_FSIZE, RLIMIT_NPROC}) {
    const rlimit none{0, 0};
    if (setrlimit(static_cast<__rlimit_resource_t>(resource), &none) != 0) return false;
  }
  const rlimit one{1, 1};
  if (setrlimit(RLIMIT_NOFILE, &one) != 0) return false;
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr))};
  const auto answer = [&](int number, uint32_t what) {
    filter.push_back(BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, static_cast<uint32_t>(number), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET + BPF_K, what));
  };
  for (const int number : kAllowed) answer(number, SECCOMP_RET_ALLOW);
  for (const int number : also_allowed) answer(number, SECCOMP_RET_ALLOW);
  for (const int number : kDenied) answer(number, SECCOMP_RET_ERRNO | EACCES);
  filter.push_back(BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
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

void ServeConfined(bool nonblocking, bool by_exit) {
  Pair pair = MakePair();
  SetNonblocking(pair.server, nonblocking);
  const std::string data = Pattern(300'000);
  const pid_t pid = Child([&] {
    pair.client.reset();
    if (!Confine()) return 1;
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
  ServeConfined(/*nonblocking=*/true, /*by_exit=*/false);
}

TEST_CASE("confinement: a child behind a seccomp filter talks on a blocking socket") {
  ServeConfined(/*nonblocking=*/false, /*by_exit=*/false);
}

TEST_CASE("confinement: a child behind a seccomp filter may leave by exit") {
  ServeConfined(/*nonblocking=*/true, /*by_exit=*/true);
}

TEST_CASE("confinement: a process behind a seccomp filter has a connection for itself") {
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

}  // namespace
}  // namespace posix_test
