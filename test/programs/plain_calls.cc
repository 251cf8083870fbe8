// A program without TCP sockets: what does the library cost it?
//
//   plain_calls count    makes every kind of call that the library stands in front of, and prints how often
//   memory was allocated
//                        meanwhile, and how many threads and descriptors there are more than before
//   plain_calls time     prints nanoseconds of a read of one byte from a pipe, and of close(-1): "READ
//   CLOSE", the best of many rounds
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
// glibc's own, behind the names that this program takes.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

std::atomic<long> allocations{0};

}  // namespace

extern "C" {

void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  ++allocations;
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"

namespace {

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

#define CHECK(call)           \
  do {                        \
    if (!(call)) Fail(#call); \
  } while (false)

int CountEntries(const char* directory) {
  DIR* const open = opendir(directory);
  CHECK(open != nullptr);
  int count = 0;
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

void Nothing(int) {}

void PassBytes(int in, int out) {
  char buffer[16];
  iovec piece{.iov_base = buffer, .iov_len = 8};
  CHECK(write(out, "12345678", 8) == 8);
  CHECK(writev(out, &piece, 1) == 8);
  CHECK(read(in, buffer, 8) == 8);
  CHECK(readv(in, &piece, 1) == 8);
}

void Wait(int in, int out) {
  CHECK(write(out, "1", 1) == 1);
  pollfd one{.fd = in, .events = POLLIN, .revents = 0};
  CHECK(poll(&one, 1, 0) == 1);
  timespec zero{};
  CHECK(ppoll(&one, 1, &zero, nullptr) == 1);
  fd_set set;
  FD_ZERO(&set);
  FD_SET(in, &set);
  timeval none{};
  CHECK(select(in + 1, &set, nullptr, nullptr, &none) == 1);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  CHECK(epoll >= 0);
  epoll_event event{.events = EPOLLIN, .data = {.fd = in}};
  CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, in, &event) == 0);
  CHECK(epoll_wait(epoll, &event, 1, 0) == 1);
  // Epoll descriptors among many others, and in one another.
  const int outer = epoll_create1(EPOLL_CLOEXEC);
  CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &event) == 0);
  CHECK(epoll_wait(outer, &event, 1, 0) == 1);
  const int more = epoll_create1(EPOLL_CLOEXEC);
  pollfd many[40];
  for (pollfd& p : many) p = {.fd = in, .events = POLLIN, .revents = 0};
  many[7].fd = epoll;
  many[8].fd = outer;
  many[9].fd = more;
  CHECK(poll(many, 40, 0) == 39);
  FD_ZERO(&set);
  for (const int fd : {in, epoll, outer, more}) FD_SET(fd, &set);
  CHECK(select(std::max({in, epoll, outer, more}) + 1, &set, nullptr, nullptr, &none) == 3);
  CHECK(close(outer) == 0 && close(more) == 0);
  CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, in, nullptr) == 0);
  CHECK(close(epoll) == 0);
  char c;
  CHECK(read(in, &c, 1) == 1);
}

void UseDescriptors(int fd) {
  const int copy = dup(fd);
  CHECK(dup2(fd, copy) == copy);
  CHECK(dup3(fd, copy, O_CLOEXEC) == copy);
  CHECK(fcntl(copy, F_SETFL, fcntl(copy, F_GETFL)) == 0);
  int waiting = 0;
  CHECK(ioctl(copy, FIONREAD, &waiting) == 0);
  CHECK(close(copy) == 0);
  CHECK(close(-1) == -1);
  CHECK(syscall(SYS_getpid) == getpid());
}

void UseUnixSockets() {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  char buffer[8];
  CHECK(send(pair[0], "1234", 4, MSG_NOSIGNAL) == 4);
  CHECK(recv(pair[1], buffer, 4, 0) == 4);
  iovec piece{.iov_base = buffer, .iov_len = 4};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  CHECK(sendmsg(pair[1], &message, 0) == 4);
  CHECK(recvmsg(pair[0], &message, 0) == 4);
  CHECK(shutdown(pair[0], SHUT_WR) == 0);
  CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
  const int datagrams = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  CHECK(datagrams >= 0 && close(datagrams) == 0);
}

void UseProcesses() {
  struct sigaction action {};
  action.sa_handler = Nothing;
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  CHECK(raise(SIGUSR1) == 0);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) _exit(0);
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int Count() {
  const int descriptors = CountEntries("/proc/self/fd");
  int pipe_fds[2];
  CHECK(pipe(pipe_fds) == 0);
  const long before = allocations;
  for (int i = 0; i < 100; ++i) {
    PassBytes(pipe_fds[0], pipe_fds[1]);
    Wait(pipe_fds[0], pipe_fds[1]);
    UseDescriptors(pipe_fds[0]);
    UseUnixSockets();
  }
  UseProcesses();
  const long made = allocations - before;
  CHECK(close(pipe_fds[0]) == 0 && close(pipe_fds[1]) == 0);
  std::printf("%ld allocations, %d threads, %d descriptors more\n", made, CountEntries("/proc/self/task") - 2,
              CountEntries("/proc/self/fd") - descriptors);
  return 0;
}

template <typename Call>
double Nanoseconds(Call call) {
  constexpr int kCalls = 20'000;
  double best = 1e9;
  for (int round = 0; round < 50; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / kCalls);
  }
  return best;
}

int Time() {
  int pipe_fds[2];
  CHECK(pipe(pipe_fds) == 0);
  CHECK(fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK) == 0);
  char c;
  // An empty pipe: the shortest read there is.
  const double read_time = Nanoseconds([&] { (void)!read(pipe_fds[0], &c, 1); });
  const double close_time = Nanoseconds([] { close(-1); });
  std::printf("%.1f %.1f\n", read_time, close_time);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "count") == 0) return Count();
  if (argc == 2 && std::strcmp(argv[1], "time") == 0) return Time();
  std::fprintf(stderr, "usage: plain_calls count|time\n");
  return 2;
}
