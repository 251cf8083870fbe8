// Rings of io_uring: what goes over one, the library does not see, and on an SDP socket it would take or give
// the RNIC's bytes for the stream's. So a process that may have SDP sockets gets none: the kernel is not
// asked, and says ENOSYS as one without io_uring. Programs then take other calls. SDP_IO_URING=allow is for
// those that use rings for files alone.
//
// Seen are syscall() and the functions of liburing as a shared library, which makes its system calls by
// instructions of its own.
#include <dlfcn.h>
#include <sys/syscall.h>

#include <cstdarg>

#include "preload/config.h"
#include "preload/entry_points.h"
#include "preload/log.h"

namespace sdp::preload {
namespace {

using Syscall = long (*)(long number, ...);

bool RingsAreDenied() {
  const int error = errno;
  const NoCancellation no_cancellation;
  RefreshConfig();
  const bool denied = config().io_uring == IoUringUse::kDeny && !NothingButTcp();
  if (denied)
    SDP_LOG(kInfo, "io_uring_setup: ENOSYS, since a ring would pass the SDP sockets by (SDP_IO_URING=allow)");
  errno = error;
  return denied;
}

// liburing's own, also where it came with a library that dlopen keeps to itself.
void* FindInLiburing(const char* name) {
  if (void* const found = dlsym(RTLD_NEXT, name)) return found;
  void* const library = dlopen("liburing.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* const found = dlsym(library, name);
  dlclose(library);  // as it was: whoever loaded it keeps it
  return found;
}

// liburing's functions return the error.
template <typename... Arguments>
int CallLiburing(const char* name, Arguments... arguments) {
  if (RingsAreDenied()) return -ENOSYS;
  using Function = int (*)(Arguments...);
  const auto function = reinterpret_cast<Function>(FindInLiburing(name));
  return function == nullptr ? -ENOSYS : function(arguments...);
}

#ifdef __x86_64__

// The system call itself, for who calls before there is anything to look up with: an allocator may, and dlsym
// allocate.
long BareSyscall(long number, ...) {
  va_list variable;
  va_start(variable, number);
  long a[6];
  for (long& argument : a) argument = va_arg(variable, long);
  va_end(variable);
  register long r10 asm("r10") = a[3];
  register long r8 asm("r8") = a[4];
  register long r9 asm("r9") = a[5];
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (static_cast<unsigned long>(result) <= -4096UL) return result;
  errno = static_cast<int>(-result);
  return -1;
}

#else

long BareSyscall(long number, ...) {
  va_list variable;
  va_start(variable, number);
  long a[6];
  for (long& argument : a) argument = va_arg(variable, long);
  va_end(variable);
  static const auto next = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#endif

}  // namespace
}  // namespace sdp::preload

using sdp::preload::CallLiburing;

extern "C" {

// Under names that the jumps below find.
__attribute__((used, visibility("hidden"))) constinit sdp::preload::Syscall SDP_ENTRY(next_syscall) =
    &sdp::preload::BareSyscall;

__attribute__((used, visibility("hidden"))) long SDP_ENTRY(guarded_io_uring_setup)(
    long number, unsigned int entries, io_uring_params* parameters) {
  if (!sdp::preload::RingsAreDenied()) return SDP_ENTRY(next_syscall)(number, entries, parameters);
  return sdp::preload::Fail(ENOSYS);
}

#ifdef __x86_64__
// Whatever the call is, vfork and clone with a stack of its own among them, it must find registers and stack
// as the caller left them: a comparison and a jump.
#ifdef SDP_PREFIXED_ENTRY_POINTS
#define SDP_NEXT_SYSCALL "sdp_entry_next_syscall"
#define SDP_GUARDED_SETUP "sdp_entry_guarded_io_uring_setup"
#else
#define SDP_NEXT_SYSCALL "next_syscall"
#define SDP_GUARDED_SETUP "guarded_io_uring_setup"
#endif
static_assert(SYS_io_uring_setup == 425);
__attribute__((naked)) long SDP_ENTRY(syscall)(long, ...) noexcept {
  asm("cmp $425, %rdi\n\tje " SDP_GUARDED_SETUP "\n\tjmp *" SDP_NEXT_SYSCALL "(%rip)");
}
#else
long SDP_ENTRY(syscall)(long number, ...) noexcept {
  va_list variable;
  va_start(variable, number);
  long a[6];
  for (long& argument : a) argument = va_arg(variable, long);
  va_end(variable);
  if (number == SYS_io_uring_setup)
    return SDP_ENTRY(guarded_io_uring_setup)(number, static_cast<unsigned int>(a[0]),
                                             reinterpret_cast<io_uring_params*>(a[1]));
  return SDP_ENTRY(next_syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#endif

int SDP_ENTRY(io_uring_setup)(unsigned int entries, io_uring_params* parameters) {
  return CallLiburing("io_uring_setup", entries, parameters);
}

int SDP_ENTRY(io_uring_queue_init)(unsigned int entries, io_uring* ring, unsigned int flags) {
  return CallLiburing("io_uring_queue_init", entries, ring, flags);
}

int SDP_ENTRY(io_uring_queue_init_params)(unsigned int entries, io_uring* ring, io_uring_params* parameters) {
  return CallLiburing("io_uring_queue_init_params", entries, ring, parameters);
}

int SDP_ENTRY(io_uring_queue_init_mem)(unsigned int entries, io_uring* ring, io_uring_params* parameters,
                                       void* memory, size_t size) {
  return CallLiburing("io_uring_queue_init_mem", entries, ring, parameters, memory, size);
}

}  // extern "C"

namespace sdp::preload {
namespace {

// Other libraries that stand in front of the C library's keep their place.
__attribute__((constructor(101))) void FindNextSyscall() {
  if (void* const next = dlsym(RTLD_NEXT, "syscall"))
    SDP_ENTRY(next_syscall) = reinterpret_cast<Syscall>(next);
}

}  // namespace
}  // namespace sdp::preload
