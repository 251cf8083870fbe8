#include "preload/confinement.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>

#include "preload/critical.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/real_calls.h"
#include "preload/seccomp_filter.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

constinit std::atomic<bool> confined{false};
constinit std::atomic<uint32_t> forbidden{0};

// What a call moves at most. A link that gave or took less is asked again when it is ready.
constexpr size_t kPiece = 16 * 1024;

#ifdef __x86_64__
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
constexpr long kPollNumber = SYS_poll;
constexpr long kOfOld[] = {SYS_readlink, SYS_unlink, SYS_epoll_wait, SYS_mkdir, SYS_lstat};
#else
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
constexpr long kPollNumber = SYS_ppoll;
constexpr long kOfOld[] = {SYS_epoll_pwait, SYS_mkdirat};
#endif

constexpr long kNumbers[] = {SYS_read,     SYS_readv,           SYS_recvfrom, SYS_recvmsg, SYS_write,
                             SYS_writev,   SYS_sendto,          SYS_sendmsg,  kPollNumber, SYS_ppoll,
                             SYS_pselect6, SYS_clock_nanosleep, SYS_shutdown, SYS_getpid,  SYS_rt_sigprocmask,
                             SYS_gettid,   SYS_tgkill,          SYS_mmap,     SYS_munmap,  SYS_connect};
static_assert(std::size(kNumbers) == static_cast<size_t>(Call::kCount));

// The rest of what the library calls for a socket at any time, and its helper thread.
constexpr long kOthers[] = {
    SYS_socket,        SYS_bind,          SYS_listen,        SYS_accept4,         SYS_getsockopt,
    SYS_setsockopt,    SYS_getsockname,   SYS_getpeername,   SYS_fcntl,           SYS_close,
    SYS_ioctl,         SYS_dup,           SYS_sendfile,      SYS_eventfd2,        SYS_signalfd4,
    SYS_epoll_ctl,     SYS_clone,         SYS_epoll_create1, SYS_epoll_pwait2,    SYS_clone3,
    SYS_futex,         SYS_rseq,          SYS_madvise,       SYS_set_robust_list, SYS_mprotect,
    SYS_openat,        SYS_newfstatat,    SYS_readlinkat,    SYS_unlinkat,        SYS_getdents64,
    SYS_pread64,       SYS_lseek,         SYS_memfd_create,  SYS_ftruncate,       SYS_fallocate,
    SYS_fstat,         SYS_rt_sigpending, SYS_rt_sigaction,  SYS_sigaltstack,     SYS_getrandom,
    SYS_prlimit64,     SYS_geteuid,       SYS_getuid,        SYS_clock_gettime,   SYS_prctl,
    SYS_exit,          SYS_socketpair,    SYS_dup3,          SYS_pwrite64,        SYS_renameat,
    SYS_kill,          SYS_getrusage,     SYS_sched_yield,   SYS_capget,          SYS_timer_create,
    SYS_timer_settime,
};

bool Allows(std::span<const sock_filter> filter, long number) {
  seccomp_data call{};
  call.nr = static_cast<int>(number);
  call.arch = kArchitecture;
  call.instruction_pointer = reinterpret_cast<uintptr_t>(&RunFilter);
  call.args[0] = 3;  // a descriptor
  if (number == SYS_recvfrom) call.args[3] = MSG_DONTWAIT;
  if (number == SYS_sendto) call.args[3] = MSG_DONTWAIT | MSG_NOSIGNAL;
  const uint32_t action = RunFilter(filter, call) & SECCOMP_RET_ACTION_FULL;
  return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG;
}

// Else the kernel refuses all filters.
bool MaySetFilters() {
  if (real.prctl(PR_GET_NO_NEW_PRIVS, 0UL, 0UL, 0UL, 0UL) == 1) return true;
  __user_cap_header_struct self{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
  return ::syscall(SYS_capget, &self, sets) != 0 ||
         (sets[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

// In place of MSG_DONTWAIT.
bool ReadyNow(int fd, short events) {
  if (const SocketRef socket = FdTable::Get(fd); socket && socket->DoesNotBlock())
    return true;  // its call says so itself
  pollfd link = {.fd = fd, .events = events, .revents = 0};
  const timespec zero{};
  int ready;
  if (!MayCall(Call::kPpoll) && MayCall(Call::kPoll)) {
    ready = real.poll(&link, 1, 0);
  } else if (!MayCall(Call::kPpoll) && MayCall(Call::kSelect) && fd < FD_SETSIZE) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    ready = real.pselect(fd + 1, (events & POLLIN) != 0 ? &set : nullptr,
                         (events & POLLOUT) != 0 ? &set : nullptr, nullptr, &zero, nullptr);
  } else if (MayCall(Call::kPpoll)) {
    ready = real.ppoll(&link, 1, &zero, nullptr);
  } else {
    ready = 1;  // of those that know none of these some do not block, and are closed by now
  }
  if (ready > 0) return true;
  errno = EAGAIN;
  return false;
}

ssize_t Read(int fd, void* buffer, size_t length, int flags) {
  iovec piece{.iov_base = buffer, .iov_len = length};
  if (MayCall(Call::kRecv)) return real.recv(fd, buffer, length, flags);
  if (MayCall(Call::kRecvmsg)) {
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return real.recvmsg(fd, &message, flags);
  }
  if ((flags & MSG_DONTWAIT) != 0 && !ReadyNow(fd, POLLIN)) return -1;
  return MayCall(Call::kRead) ? real.read(fd, buffer, length) : real.readv(fd, &piece, 1);
}

// By write SIGPIPE comes, as the program's own would bring it.
ssize_t Write(int fd, const void* buffer, size_t length, int flags) {
  iovec piece{.iov_base = const_cast<void*>(buffer), .iov_len = std::min(length, kPiece)};
  if (MayCall(Call::kSend)) return real.send(fd, buffer, length, flags);
  if (MayCall(Call::kSendmsg)) {
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return real.sendmsg(fd, &message, flags);
  }
  // A piece fits where there is room, also on a blocking socket.
  if (!ReadyNow(fd, POLLOUT)) return -1;
  return MayCall(Call::kWrite) ? real.write(fd, buffer, piece.iov_len) : real.writev(fd, &piece, 1);
}

}  // namespace

bool Confined() { return confined.load(std::memory_order_relaxed); }

bool MayCall(Call call) {
  return (forbidden.load(std::memory_order_relaxed) >> static_cast<unsigned>(call) & 1) == 0;
}

ComingFilter::ComingFilter(const sock_fprog* program) {
  constexpr sock_filter kReadAndWrite[] = {BPF_STMT(BPF_LD + BPF_W + BPF_ABS, offsetof(seccomp_data, nr)),
                                           BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, SYS_read, 1, 0),
                                           BPF_JUMP(BPF_JMP + BPF_JEQ + BPF_K, SYS_write, 0, 1),
                                           BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_ALLOW),
                                           BPF_STMT(BPF_RET + BPF_K, SECCOMP_RET_KILL_PROCESS)};
  std::span<const sock_filter> filter = kReadAndWrite;
  if (program != nullptr) {
    if (!MayRead(program, sizeof *program) || program->len == 0 || program->len > BPF_MAXINSNS ||
        !MayRead(program->filter, program->len * sizeof *program->filter))
      return;  // refused
    filter = {program->filter, program->len};
    needs_right_ = true;
    refused_ = !IsFilter(filter);
  }
  for (size_t i = 0; i < std::size(kNumbers); ++i) {
    if (!Allows(filter, kNumbers[i])) forbidden_ |= 1U << i;
  }
  const auto allows = [filter](long number) { return Allows(filter, number); };
  confines_ = forbidden_ != 0 || !std::all_of(std::begin(kOthers), std::end(kOthers), allows) ||
              !std::all_of(std::begin(kOfOld), std::end(kOfOld), allows);
}

bool ComingFilter::will_confine() const {
  return confines_ && !refused_ && (!needs_right_ || MaySetFilters());
}

void ComingFilter::Note() const {
  forbidden.fetch_or(forbidden_, std::memory_order_relaxed);
  confined.store(true, std::memory_order_relaxed);
}

// In milliseconds, rounded up.
int ToMilliseconds(const timespec* time) {
  if (time == nullptr) return -1;
  if (time->tv_sec >= INT_MAX / 1000) return INT_MAX;
  return static_cast<int>(time->tv_sec * 1000 + (time->tv_nsec + 999'999) / 1'000'000);
}

// What does not sleep is no cancellation point: what was half said to the link, or taken from it, would be
// lost with the thread.

ssize_t LinkRecv(int fd, void* buffer, size_t length, int flags) {
  if ((flags & MSG_DONTWAIT) == 0) {
    const SleepMayBeCancelled here;
    LinkRead::Begin(fd);
    if (Critical::BreaksOff(fd)) [[unlikely]] {
      errno = EINTR;
      return -1;
    }
    return Confined() ? Read(fd, buffer, length, flags) : real.recv(fd, buffer, length, flags);
  }
  const NoCancellation no_cancellation;
  return Confined() ? Read(fd, buffer, length, flags) : real.recv(fd, buffer, length, flags);
}

// Where the filter has no call for several pieces. Apart, for its stack: threads of 64 KiB send and receive.
[[gnu::noinline]] static ssize_t ReceiveInOnePiece(int fd, const msghdr* message, int flags) {
  std::byte piece[kPiece];
  size_t room = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) room += message->msg_iov[i].iov_len;
  const ssize_t n = LinkRecv(fd, piece, std::min(room, sizeof piece), flags);
  size_t done = 0;
  for (size_t i = 0; n > 0 && done < static_cast<size_t>(n); ++i) {
    const iovec& part = message->msg_iov[i];
    const size_t size = std::min(part.iov_len, static_cast<size_t>(n) - done);
    std::memcpy(part.iov_base, piece + done, size);
    done += size;
  }
  return n;
}

ssize_t LinkRecvMessage(int fd, msghdr* message, int flags) {
  if (!Confined()) [[likely]] {
    if ((flags & MSG_DONTWAIT) == 0) {
      const SleepMayBeCancelled here;
      LinkRead::Begin(fd);
      if (Critical::BreaksOff(fd)) [[unlikely]] {
        errno = EINTR;
        return -1;
      }
      return real.recvmsg(fd, message, flags);
    }
    const NoCancellation no_cancellation;
    return real.recvmsg(fd, message, flags);
  }
  return ReceiveInOnePiece(fd, message, flags);
}

ssize_t LinkSend(int fd, const void* buffer, size_t length, int flags) {
  const NoCancellation no_cancellation;
  return Confined() ? Write(fd, buffer, length, flags) : real.send(fd, buffer, length, flags);
}

[[gnu::noinline]] static ssize_t SendInOnePiece(int fd, const msghdr* message, int flags) {
  std::byte piece[kPiece];
  size_t size = 0;
  for (size_t i = 0; i < message->msg_iovlen && size < sizeof piece; ++i) {
    const iovec& part = message->msg_iov[i];
    const size_t taken = std::min(part.iov_len, sizeof piece - size);
    std::memcpy(piece + size, part.iov_base, taken);
    size += taken;
  }
  return LinkSend(fd, piece, size, flags);
}

ssize_t LinkSendMessage(int fd, const msghdr* message, int flags) {
  const NoCancellation no_cancellation;
  return Confined() ? SendInOnePiece(fd, message, flags) : real.sendmsg(fd, message, flags);
}

// Where there may be no such call, the link's end goes with the descriptor.
int LinkShutdown(int fd, int how) { return MayCall(Call::kShutdown) ? real.shutdown(fd, how) : 0; }

int LinkConnect(int fd, const sockaddr* address, socklen_t length) {
  if (!MayCall(Call::kConnect)) {
    errno = ENOSYS;
    return -1;
  }
  // The system call itself, which is no point of cancellation.
  return static_cast<int>(syscall(SYS_connect, fd, address, length));
}

int WaitForEpoll(int epfd, epoll_event* events, int max_events, const timespec* timeout,
                 const sigset_t* mask) {
  if (!Confined() || programs_epoll_call == EpollCall::kPwait2) [[likely]]
    return real.epoll_pwait2(epfd, events, max_events, timeout, mask);
  if (programs_epoll_call == EpollCall::kWait && mask == nullptr)
    return real.epoll_wait(epfd, events, max_events, ToMilliseconds(timeout));
  return real.epoll_pwait(epfd, events, max_events, ToMilliseconds(timeout), mask);
}

int LinkGetOption(int fd, int level, int name, void* value, socklen_t* length) {
  if (!Confined()) [[likely]]
    return real.getsockopt(fd, level, name, value, length);
  errno = ENOSYS;
  return -1;
}

int LinkSetOption(int fd, int level, int name, const void* value, socklen_t length) {
  if (!Confined()) [[likely]]
    return real.setsockopt(fd, level, name, value, length);
  errno = ENOSYS;
  return -1;
}

}  // namespace sdp::preload
