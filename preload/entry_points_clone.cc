// clone() without CLONE_VM makes a child with memory of its own. The child begins in a function of the
// program's, on a stack of the program's; the library treats it as a child of fork. With CLONE_VM the call
// makes a thread or a child of vfork, and goes to the C library unchanged.
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <cstdarg>

#include "preload/critical.h"
#include "preload/entry_points.h"
#include "preload/startup.h"

namespace sdp::preload {
namespace {

using Function = int (*)(void*);
using Clone = int (*)(Function function, void* stack, int flags, void* argument, ...);

struct Beginning {
  Function function;
  void* argument;
};

// Runs in the child. `beginning` points into the child's copy of the parent's stack.
int Begin(void* beginning) {
  const Beginning copy = *static_cast<Beginning*>(beginning);
  AfterForkInChild();
  // The C library would end the process by a system call of its own.
  ::_exit(copy.function(copy.argument));
}

}  // namespace

int SDP_ENTRY(clone)(int (*function)(void*), void* stack, int flags, void* argument, ...) noexcept {
  va_list variable;
  va_start(variable, argument);
  // The caller need not have passed arguments that the flags do not ask for.
  const bool has_child_tid = (flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID)) != 0;
  const bool has_tls = has_child_tid || (flags & CLONE_SETTLS) != 0;
  const bool has_parent_tid = has_tls || (flags & (CLONE_PARENT_SETTID | CLONE_PIDFD)) != 0;
  auto* const parent_tid = has_parent_tid ? va_arg(variable, pid_t*) : nullptr;
  void* const tls = has_tls ? va_arg(variable, void*) : nullptr;
  auto* const child_tid = has_child_tid ? va_arg(variable, pid_t*) : nullptr;
  va_end(variable);
  static const auto next = reinterpret_cast<Clone>(dlsym(RTLD_NEXT, "clone"));
  // A call that the kernel would refuse stays unchanged.
  if ((flags & CLONE_VM) != 0 || function == nullptr || stack == nullptr)
    return next(function, stack, flags, argument, parent_tid, tls, child_tid);
  Beginning beginning{.function = function, .argument = argument};
  BeforeFork();
  const int pid = next(&Begin, stack, flags, &beginning, parent_tid, tls, child_tid);
  const KeepErrno keep;
  AfterForkInParent();
  return pid;
}

// fork without the hooks that other libraries have registered; the library's own hooks keep the connections
// whole. A handler may call this in the middle of malloc, which a thread for the child's connections would
// need. So a handler's child gets no connections.
pid_t SDP_ENTRY(_Fork)() noexcept {
  if (Started() && Critical::MayBeInHandler()) return real._Fork();
  return ForkBy([] { return real._Fork(); });
}

}  // namespace sdp::preload
