#include "portmapper/daemon/sandbox.h"

#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SDP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SDP_SANITIZED 1
#endif
#endif

namespace sdp::pm {

absl::StatusOr<User> FindUser(const std::string& name) {
  uid_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, number);
  const bool is_number = error == std::errc() && stop == end;
  errno = 0;
  const passwd* entry = is_number ? getpwuid(number) : getpwnam(name.c_str());
  if (entry != nullptr) return User{entry->pw_uid, entry->pw_gid};
  if (is_number) return User{number, static_cast<gid_t>(number)};
  return absl::NotFoundError(
      absl::StrCat("there is no user ", name, "; `systemd-sysusers` makes those of the package"));
}

absl::Status BecomeUser(const User& user) {
  if (setgroups(0, nullptr) != 0 || setresgid(user.gid, user.gid, user.gid) != 0 ||
      setresuid(user.uid, user.uid, user.uid) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot become user ", user.uid));
  }
  if (user.uid != 0 && setresuid(0, 0, 0) == 0) return absl::InternalError("could become root again");
  // Its memory is nobody's business: it holds what local programs passed.
  prctl(PR_SET_DUMPABLE, 0);
  return absl::OkStatus();
}

namespace {

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(SDP_SANITIZED)
#define SDP_HAVE_FILTER 1

#if defined(__x86_64__)
constexpr uint32_t kMachine = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kMachine = AUDIT_ARCH_AARCH64;
#endif

constexpr int kAllowed[] = {
    // serving
    SYS_recvmmsg,
    SYS_sendmmsg,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_recvfrom,
    SYS_sendto,
    SYS_accept4,
    SYS_connect,
    SYS_bind,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_shutdown,
    SYS_close,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_ppoll,
    SYS_read,
    SYS_readv,
    SYS_write,
    SYS_writev,
    SYS_fcntl,
    // the registry, /proc/net, our own socket's name
    SYS_openat,
    SYS_newfstatat,
    SYS_fstat,
    SYS_statx,
    SYS_lseek,
    SYS_unlinkat,
    SYS_pread64,
    // the C library and its threads
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_tgkill,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
    SYS_prctl,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
    SYS_poll,
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_unlink,
    SYS_time,
    SYS_gettimeofday,
#endif
};

constexpr uint32_t kFamilies[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};

std::vector<sock_filter> Program() {
  constexpr uint32_t kNumber = offsetof(seccomp_data, nr);
  constexpr uint32_t kFirstArgument =
      offsetof(seccomp_data, args);  // its lower half: both machines are little-endian
  constexpr uint32_t kSecondArgument = kFirstArgument + sizeof(uint64_t);
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_filter kill = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  const auto refuse = [](uint32_t error) {
    return sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
  };
  const auto unless = [](uint32_t value, uint8_t skip) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip);
  };
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      unless(kMachine, 1),
      BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
      kill,
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
  };
  for (const int number : kAllowed) {
    program.push_back(unless(static_cast<uint32_t>(number), 1));
    program.push_back(allow);
  }
  // clone3 hides its flags from us: the C library takes clone instead.
  program.push_back(unless(SYS_clone3, 1));
  program.push_back(refuse(ENOSYS));
  // Threads, no processes.
  program.push_back(unless(SYS_clone, 4));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFirstArgument));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1));
  program.push_back(allow);
  program.push_back(kill);
  // The C library asks whether standard output is a terminal; the answer may be.
  program.push_back(unless(SYS_ioctl, 4));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSecondArgument));
  program.push_back(unless(TCGETS, 1));
  program.push_back(allow);
  program.push_back(refuse(ENOTTY));
  // Sockets of the families we know.
  program.push_back(unless(SYS_socket, static_cast<uint8_t>(2 + 2 * std::size(kFamilies))));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFirstArgument));
  for (const uint32_t family : kFamilies) {
    program.push_back(unless(family, 1));
    program.push_back(allow);
  }
  program.push_back(refuse(EAFNOSUPPORT));
  program.push_back(kill);
  return program;
}

#endif

}  // namespace

absl::Status RestrictSystemCalls() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return absl::ErrnoToStatus(errno, "PR_SET_NO_NEW_PRIVS");
#ifdef SDP_HAVE_FILTER
  std::vector<sock_filter> program = Program();
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
    return absl::ErrnoToStatus(errno, "seccomp");
  }
  return absl::OkStatus();
#else
  return absl::UnavailableError("no filter of system calls on this machine or in this build");
#endif
}

}  // namespace sdp::pm
