// syscall() passes everything on except the calls that the library has to know about. close, with which libuv
// closes its sockets, becomes our entry point. io_uring_setup may be refused. exit may end the main thread. A
// process made here by clone, clone3 or fork, without the C library, is a child of fork to us. seccomp, which
// has no other function, sets filters (confinement.h).
#include <dlfcn.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "preload/allowed_calls.h"
#include "preload/confinement.h"
#include "preload/entry_points.h"
#include "preload/guard.h"
#include "preload/main_thread.h"
#include "preload/readiness/readiness.h"
#include "preload/startup.h"
#include "preload/user_memory.h"

namespace sdp::preload {
namespace {

using Syscall = long (*)(long number, ...);

// The bare system call, for callers before the look-up: an allocator may call, and dlsym may allocate.
long BareSyscall(long number, ...) {
  va_list variable;
  va_start(variable, number);
  long a[6];
  for (long& argument : a) argument = va_arg(variable, long);
  va_end(variable);
#ifdef __x86_64__
  register long r10 asm("r10") = a[3];
  register long r8 asm("r8") = a[4];
  register long r9 asm("r9") = a[5];
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return static_cast<unsigned long>(result) <= -4096UL ? result : Fail(static_cast<int>(-result));
#else
  static const auto next = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
#endif
}

}  // namespace

extern "C" {

// The assembly code below finds these names.
__attribute__((used, visibility("hidden"))) constinit Syscall SDP_ENTRY(next_syscall) = &BareSyscall;

// Handles only the program's numbers: the library itself may call this.
__attribute__((used, visibility("hidden"))) long SDP_ENTRY(guarded_close)(long number, int fd) {
  if (!FdTable::Has(fd) && !EpollKnows(fd)) return SDP_ENTRY(next_syscall)(number, fd);
  const NoCancellation no_cancellation;  // like the system call
  return SDP_ENTRY(close)(fd);
}

__attribute__((used, visibility("hidden"))) long SDP_ENTRY(guarded_io_uring_setup)(
    long number, unsigned int entries, io_uring_params* parameters) {
  if (!RingsAreDenied()) return SDP_ENTRY(next_syscall)(number, entries, parameters);
  return Fail(ENOSYS);
}

// Ends only the calling thread, and no key's destructor runs.
__attribute__((used, visibility("hidden"))) long SDP_ENTRY(guarded_exit)(long number, long status) {
  const bool may_ask = MayCall(Call::kGetpid) && MayCall(Call::kGettid);
  if (may_ask && OwnsProcess() && gettid() == getpid()) MainThread::NoteEnd();
  return SDP_ENTRY(next_syscall)(number, status);
}

// The child has memory of its own and the same stack.
__attribute__((used, visibility("hidden"))) long SDP_ENTRY(guarded_fork)(long number, long flags, long stack,
                                                                         long parent_tid, long child_tid,
                                                                         long tls) {
  return ForkBy([&] { return SDP_ENTRY(next_syscall)(number, flags, stack, parent_tid, child_tid, tls); });
}

// Returns whether clone3 is asked for a child with memory of its own, on the caller's stack. For an invalid
// request the kernel returns the right error.
__attribute__((used, visibility("hidden"))) bool SDP_ENTRY(makes_process)(const clone_args* request,
                                                                          size_t size) {
  const KeepErrno keep;
  return size >= CLONE_ARGS_SIZE_VER0 && MayRead(request, CLONE_ARGS_SIZE_VER0) &&
         (request->flags & CLONE_VM) == 0 && request->stack == 0;
}

__attribute__((used, visibility("hidden"))) long SDP_ENTRY(guarded_filter)(long number, long a, long b,
                                                                           long c, long d, long e) {
  const auto call = [=] { return SDP_ENTRY(next_syscall)(number, a, b, c, d, e); };
  // The kernel takes an int here, so the other half of the register means nothing.
  const auto operation = static_cast<uint32_t>(a), flags = static_cast<uint32_t>(b);
  if (number == SYS_prctl) {
    const auto mode = static_cast<unsigned long>(b), program = static_cast<unsigned long>(c);
    return operation == PR_SET_SECCOMP ? ConfineByPrctl(mode, program, call) : call();
  }
  if (operation == SECCOMP_SET_MODE_STRICT && flags == 0 && c == 0) return Confine(nullptr, call);
  // libseccomp passes null filters to find out what the kernel knows.
  if (operation != SECCOMP_SET_MODE_FILTER || c == 0) return call();
  // A positive result is a descriptor, or the thread that could not take the filter: then no thread has it.
  const bool names_thread =
      (flags & (SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_NEW_LISTENER)) == SECCOMP_FILTER_FLAG_TSYNC;
  return Confine(reinterpret_cast<const sock_fprog*>(c), call, names_thread ? 0 : LONG_MAX);
}

}  // extern "C"

#ifdef __x86_64__
// Any call, including vfork and clone with a stack of its own, must find registers and stack as the caller
// left them. So this is comparisons and a jump.
static_assert(SYS_close == 3 && SYS_exit == 60 && SYS_seccomp == 317 && SYS_prctl == 157);
static_assert(SYS_io_uring_setup == 425 && SYS_clone == 56 && SYS_fork == 57 && SYS_clone3 == 435 &&
              CLONE_VM == 0x100);
__attribute__((naked)) long SDP_ENTRY(syscall)(long, ...) noexcept {
  asm("cmp $3, %rdi\n\tje " SDP_SYMBOL(guarded_close)
      "\n\tcmp $425, %rdi\n\tje " SDP_SYMBOL(guarded_io_uring_setup)
      "\n\tcmp $57, %rdi\n\tje " SDP_SYMBOL(guarded_fork)
      "\n\tcmp $317, %rdi\n\tje " SDP_SYMBOL(guarded_filter)
      "\n\tcmp $157, %rdi\n\tje " SDP_SYMBOL(guarded_filter)
      "\n\tcmp $60, %rdi\n\tje " SDP_SYMBOL(guarded_exit)
      "\n\tcmp $435, %rdi\n\tjne 2f"
      "\n\tpush %rdi\n\tpush %rsi\n\tpush %rdx\n\tpush %rcx\n\tpush %r8\n\tpush %r9\n\tsub $8, %rsp"
      "\n\tmov %rsi, %rdi\n\tmov %rdx, %rsi\n\tcall " SDP_SYMBOL(makes_process)
      "\n\tadd $8, %rsp\n\tpop %r9\n\tpop %r8\n\tpop %rcx\n\tpop %rdx\n\tpop %rsi\n\tpop %rdi"
      "\n\ttest %al, %al\n\tjnz " SDP_SYMBOL(guarded_fork)
      "\n\tjmp 1f"
      "\n2:\tcmp $56, %rdi\n\tjne 1f"
      "\n\ttest $0x100, %esi\n\tjnz 1f"
      "\n\ttest %rdx, %rdx\n\tjz " SDP_SYMBOL(guarded_fork) "\n1:\tjmp *" SDP_SYMBOL(next_syscall) "(%rip)");
}
#else
long SDP_ENTRY(syscall)(long number, ...) noexcept {
  va_list variable;
  va_start(variable, number);
  long a[6];
  for (long& argument : a) argument = va_arg(variable, long);
  va_end(variable);
  if (number == SYS_close) return SDP_ENTRY(guarded_close)(number, static_cast<int>(a[0]));
  if (number == SYS_io_uring_setup)
    return SDP_ENTRY(guarded_io_uring_setup)(number, static_cast<unsigned int>(a[0]),
                                             reinterpret_cast<io_uring_params*>(a[1]));
  if (number == SYS_exit) return SDP_ENTRY(guarded_exit)(number, a[0]);
  if (number == SYS_seccomp || number == SYS_prctl)
    return SDP_ENTRY(guarded_filter)(number, a[0], a[1], a[2], a[3], a[4]);
  if (number == SYS_clone && (a[0] & CLONE_VM) == 0 && a[1] == 0)
    return SDP_ENTRY(guarded_fork)(number, a[0], a[1], a[2], a[3], a[4]);
  if (number == SYS_clone3 && SDP_ENTRY(makes_process)(reinterpret_cast<const clone_args*>(a[0]), a[1]))
    return SDP_ENTRY(guarded_fork)(number, a[0], a[1], a[2], a[3], a[4]);
  return SDP_ENTRY(next_syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#endif

namespace {

// Finds the next definition, so that other libraries in front of the C library keep their place.
__attribute__((constructor(101))) void FindNextSyscall() {
  if (void* const next = dlsym(RTLD_NEXT, "syscall"))
    SDP_ENTRY(next_syscall) = reinterpret_cast<Syscall>(next);
}

}  // namespace
}  // namespace sdp::preload
