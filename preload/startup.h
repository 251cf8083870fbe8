// The stages in which the library comes to life. Each works without the later ones.
//
//   0  nothing has run: `real` resolves itself, FdTable and HiddenFds are empty, every call passes through
//   1  libsdp.so's constructor, or the first socket() if that comes earlier: real calls looked up,
//      process id noted, fork hooks
//   2  the first managed socket: configuration reported, the embedded RNIC's system calls set, hooks of
//      the socket room live
//
// A process that never makes a stream socket stays in stage 1: no thread, no allocation, no descriptor.
#ifndef SDP_PRELOAD_STARTUP_H_
#define SDP_PRELOAD_STARTUP_H_

#include "preload/fail.h"

namespace sdp::preload {

// Reaches stage 2 once; later calls cost a load.
void EnsureStarted();
// Returns true from stage 2 on: this process has, or had, managed sockets.
bool Started();

// Sets what runs first when the process ends by exit() or return from main.
void SetExitHook(void (*hook)());

// Returns false in a child made by vfork(), or by a clone() that shares memory. Such a child shares our
// memory but perhaps not our descriptors, so nothing of ours may change there. Calls that close or duplicate
// descriptors then go to the kernel alone. A child of fork() owns its copy. Costs one getpid().
bool OwnsProcess();

// The C library's fork calls these by itself. Call them in the forking thread around any other way to fork.
void BeforeFork();
void AfterForkInParent();
void AfterForkInChild();
// `fork` is such a way.
template <typename Fork>
auto ForkBy(Fork fork) {
  BeforeFork();
  const auto pid = fork();
  const KeepErrno keep;
  pid == 0 ? AfterForkInChild() : AfterForkInParent();
  return pid;
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_STARTUP_H_
