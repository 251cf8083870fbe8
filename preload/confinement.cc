#include "preload/confinement.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>

#include "preload/real_calls.h"
#include "preload/seccomp_filter.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

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

// The other calls that the library makes for a socket at any time, and for its helper thread.
constexpr long kOthers[] = {
    SYS_socket,      SYS_bind,         SYS_listen,      SYS_accept4,   SYS_getsockopt,      SYS_setsockopt,
    SYS_getsockname, SYS_getpeername,  SYS_fcntl,       SYS_close,     SYS_ioctl,           SYS_dup,
    SYS_sendfile,    SYS_eventfd2,     SYS_epoll_ctl,   SYS_clone,     SYS_epoll_create1,   SYS_epoll_pwait2,
    SYS_clone3,      SYS_futex,        SYS_rseq,        SYS_madvise,   SYS_set_robust_list, SYS_mprotect,
    SYS_openat,      SYS_newfstatat,   SYS_readlinkat,  SYS_unlinkat,  SYS_getdents64,      SYS_pread64,
    SYS_lseek,       SYS_memfd_create, SYS_ftruncate,   SYS_fallocate, SYS_fstat,           SYS_rt_sigaction,
    SYS_sigaltstack, SYS_getrandom,    SYS_prlimit64,   SYS_geteuid,   SYS_getuid,          SYS_clock_gettime,
    SYS_prctl,       SYS_exit,         SYS_socketpair,  SYS_dup3,      SYS_pwrite64,        SYS_renameat,
    SYS_kill,        SYS_getrusage,    SYS_sched_yield, SYS_capget,    SYS_futex_waitv,     SYS_recvmmsg,
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

// Returns whether the process may set filters. If not, the kernel refuses all of them.
bool MaySetFilters() {
  if (real.prctl(PR_GET_NO_NEW_PRIVS, 0UL, 0UL, 0UL, 0UL) == 1) return true;
  __user_cap_header_struct self{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
  return ::syscall(SYS_capget, &self, sets) != 0 ||
         (sets[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

}  // namespace

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

void ComingFilter::Note() const { AllowedCalls::Forbid(forbidden_); }

}  // namespace sdp::preload
