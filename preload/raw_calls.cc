#include <linux/sockios.h>
#include <sys/syscall.h>

#include <cstdarg>
#include <cstdlib>

#include "preload/fail.h"
#include "preload/real_calls.h"

namespace sdp::preload::raw {
namespace {

// The size of the kernel's signal set, in bytes.
constexpr size_t kMaskSize = 8;

constexpr long kMillisecond = 1'000'000;

template <typename... Arguments>
int Int(long number, Arguments... arguments) {
  return static_cast<int>(::syscall(number, arguments...));
}

// Newer architectures have only the calls that take a timespec.
timespec FromMilliseconds(int timeout) { return {timeout / 1000, timeout % 1000 * kMillisecond}; }

}  // namespace

int socket(int domain, int type, int protocol) { return Int(SYS_socket, domain, type, protocol); }
int socketpair(int domain, int type, int protocol, int fds[2]) {
  return Int(SYS_socketpair, domain, type, protocol, fds);
}
int bind(int fd, const sockaddr* address, socklen_t length) { return Int(SYS_bind, fd, address, length); }
int listen(int fd, int backlog) { return Int(SYS_listen, fd, backlog); }
int accept(int fd, sockaddr* address, socklen_t* length) { return Int(SYS_accept, fd, address, length); }
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  return Int(SYS_accept4, fd, address, length, flags);
}
int connect(int fd, const sockaddr* address, socklen_t length) {
  return Int(SYS_connect, fd, address, length);
}
int shutdown(int fd, int how) { return Int(SYS_shutdown, fd, how); }
int getsockname(int fd, sockaddr* address, socklen_t* length) {
  return Int(SYS_getsockname, fd, address, length);
}
int getpeername(int fd, sockaddr* address, socklen_t* length) {
  return Int(SYS_getpeername, fd, address, length);
}
int getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  return Int(SYS_getsockopt, fd, level, name, value, length);
}
int setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  return Int(SYS_setsockopt, fd, level, name, value, length);
}
int sockatmark(int fd) {
  int at_mark = 0;
  return Int(SYS_ioctl, fd, SIOCATMARK, &at_mark) == -1 ? -1 : at_mark;
}
int ioctl(int fd, unsigned long request, ...) {
  va_list variable;
  va_start(variable, request);
  void* argument = va_arg(variable, void*);
  va_end(variable);
  return Int(SYS_ioctl, fd, request, argument);
}

ssize_t read(int fd, void* buffer, size_t length) { return ::syscall(SYS_read, fd, buffer, length); }
ssize_t readv(int fd, const iovec* iov, int count) { return ::syscall(SYS_readv, fd, iov, count); }
ssize_t recv(int fd, void* buffer, size_t length, int flags) {
  return ::syscall(SYS_recvfrom, fd, buffer, length, flags, nullptr, nullptr);
}
ssize_t recvfrom(int fd, void* buffer, size_t length, int flags, sockaddr* address,
                 socklen_t* address_length) {
  return ::syscall(SYS_recvfrom, fd, buffer, length, flags, address, address_length);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) { return ::syscall(SYS_recvmsg, fd, message, flags); }
int recvmmsg(int fd, mmsghdr* messages, unsigned int count, int flags, timespec* timeout) {
  return Int(SYS_recvmmsg, fd, messages, count, flags, timeout);
}
ssize_t write(int fd, const void* buffer, size_t length) { return ::syscall(SYS_write, fd, buffer, length); }
ssize_t writev(int fd, const iovec* iov, int count) { return ::syscall(SYS_writev, fd, iov, count); }
ssize_t send(int fd, const void* buffer, size_t length, int flags) {
  return ::syscall(SYS_sendto, fd, buffer, length, flags, nullptr, 0);
}
ssize_t sendto(int fd, const void* buffer, size_t length, int flags, const sockaddr* address,
               socklen_t address_length) {
  return ::syscall(SYS_sendto, fd, buffer, length, flags, address, address_length);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return ::syscall(SYS_sendmsg, fd, message, flags);
}
int sendmmsg(int fd, mmsghdr* messages, unsigned int count, int flags) {
  return Int(SYS_sendmmsg, fd, messages, count, flags);
}
ssize_t sendfile(int out, int in, off_t* offset, size_t count) {
  return ::syscall(SYS_sendfile, out, in, offset, count);
}
ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count, unsigned int flags) {
  return ::syscall(SYS_splice, in, in_offset, out, out_offset, count, flags);
}
// The kernel takes the position in two halves. Where a register holds all of it, the lower half does.
ssize_t preadv2(int fd, const iovec* iov, int count, off_t offset, int flags) {
  return ::syscall(SYS_preadv2, fd, iov, count, offset, offset >> 32, flags);
}
ssize_t pwritev2(int fd, const iovec* iov, int count, off_t offset, int flags) {
  return ::syscall(SYS_pwritev2, fd, iov, count, offset, offset >> 32, flags);
}

int close(int fd) { return Int(SYS_close, fd); }
int close_range(unsigned int first, unsigned int last, int flags) {
  return Int(SYS_close_range, first, last, flags);
}
void closefrom(int first) { raw::close_range(first < 0 ? 0 : static_cast<unsigned>(first), ~0U, 0); }
int dup(int fd) { return Int(SYS_dup, fd); }
int dup2(int from, int to) {
  // dup3 refuses equal numbers, for which dup2 does nothing.
  if (from == to) return Int(SYS_fcntl, from, F_GETFD) == -1 ? -1 : to;
  return Int(SYS_dup3, from, to, 0);
}
int dup3(int from, int to, int flags) { return Int(SYS_dup3, from, to, flags); }
int fcntl(int fd, int command, ...) {
  va_list variable;
  va_start(variable, command);
  void* argument = va_arg(variable, void*);
  va_end(variable);
  return Int(SYS_fcntl, fd, command, argument);
}

int prctl(int option, ...) {
  va_list variable;
  va_start(variable, option);
  unsigned long arguments[4];
  for (unsigned long& argument : arguments) argument = va_arg(variable, unsigned long);
  va_end(variable);
  return Int(SYS_prctl, option, arguments[0], arguments[1], arguments[2], arguments[3]);
}

int poll(pollfd* fds, nfds_t count, int timeout) {
  timespec wait = FromMilliseconds(timeout);
  return Int(SYS_ppoll, fds, count, timeout < 0 ? nullptr : &wait, nullptr, kMaskSize);
}
int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  timespec wait = timeout != nullptr
                      ? *timeout
                      : timespec{};  // the kernel writes the remaining time back, ppoll() does not
  return Int(SYS_ppoll, fds, count, timeout != nullptr ? &wait : nullptr, mask, kMaskSize);
}
int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  timespec wait{};
  if (timeout != nullptr)
    wait = {timeout->tv_sec + timeout->tv_usec / 1'000'000, timeout->tv_usec % 1'000'000 * 1000};
  const int result =
      Int(SYS_pselect6, count, read, write, except, timeout != nullptr ? &wait : nullptr, nullptr);
  if (timeout != nullptr) *timeout = {wait.tv_sec, wait.tv_nsec / 1000};
  return result;
}
int pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout,
            const sigset_t* mask) {
  timespec wait = timeout != nullptr ? *timeout : timespec{};
  const struct {
    const sigset_t* mask;
    size_t size;
  } sized_mask = {mask, kMaskSize};
  return Int(SYS_pselect6, count, read, write, except, timeout != nullptr ? &wait : nullptr, &sized_mask);
}
int epoll_create(int size) {
  if (size <= 0) return Fail(EINVAL);
  return Int(SYS_epoll_create1, 0);
}
int epoll_create1(int flags) { return Int(SYS_epoll_create1, flags); }
int epoll_ctl(int epfd, int operation, int fd, epoll_event* event) {
  return Int(SYS_epoll_ctl, epfd, operation, fd, event);
}
int epoll_wait(int epfd, epoll_event* events, int max_events, int timeout) {
  return Int(SYS_epoll_pwait, epfd, events, max_events, timeout, nullptr, kMaskSize);
}
int epoll_pwait(int epfd, epoll_event* events, int max_events, int timeout, const sigset_t* mask) {
  return Int(SYS_epoll_pwait, epfd, events, max_events, timeout, mask, kMaskSize);
}
int epoll_pwait2(int epfd, epoll_event* events, int max_events, const timespec* timeout,
                 const sigset_t* mask) {
  return Int(SYS_epoll_pwait2, epfd, events, max_events, timeout, mask, kMaskSize);
}
int execve(const char* path, char* const argv[], char* const envp[]) {
  return Int(SYS_execve, path, argv, envp);
}
int execvpe(const char* file, char* const argv[], char* const envp[]) {
  return raw::execve(file, argv, envp);
}
int fexecve(int fd, char* const argv[], char* const envp[]) {
  return raw::execveat(fd, "", argv, envp, AT_EMPTY_PATH);
}
int execveat(int directory, const char* path, char* const argv[], char* const envp[], int flags) {
  return Int(SYS_execveat, directory, path, argv, envp, flags);
}
int posix_spawn(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                char* const[], char* const[]) {
  return ENOSYS;
}
int posix_spawnp(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                 char* const[], char* const[]) {
  return ENOSYS;
}
int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t*, int, int) { return ENOSYS; }
int posix_spawn_file_actions_init(posix_spawn_file_actions_t*) { return ENOSYS; }
int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t*) { return 0; }
int system(const char*) { return Fail(ENOSYS); }
FILE* popen(const char*, const char*) {
  errno = ENOSYS;
  return nullptr;
}
FILE* fdopen(int, const char*) {
  errno = ENOMEM;
  return nullptr;
}
FILE* freopen(const char*, const char*, FILE*) {
  errno = ENOMEM;
  return nullptr;
}
// The kernel's call needs the function by which handlers return, which only the C library knows.
int sigaction(int, const struct sigaction*, struct sigaction*) { return Fail(ENOSYS); }
int unshare(int flags) { return Int(SYS_unshare, flags); }
int setns(int fd, int type) { return Int(SYS_setns, fd, type); }
// After the bare system call the C library's record of the thread would still be the parent's.
pid_t _Fork() { return Fail(ENOSYS); }
// Only the C library can read what its setjmp has written.
void longjmp(jmp_buf, int) { std::abort(); }
void __longjmp_chk(jmp_buf, int) { std::abort(); }
int vdprintf(int fd, const char* format, va_list arguments) {
  char text[1024];
  const int length = vsnprintf(text, sizeof text, format, arguments);
  return length < 0
             ? -1
             : Int(SYS_write, fd, text, std::min<size_t>(static_cast<size_t>(length), sizeof text - 1));
}
int __vdprintf_chk(int fd, int, const char* format, va_list arguments) {
  return raw::vdprintf(fd, format, arguments);
}
void _exit(int status) { ::syscall(SYS_exit_group, status); }
void _Exit(int status) { ::syscall(SYS_exit_group, status); }

}  // namespace sdp::preload::raw
