// The stages in which the library comes to life. Each works without the later ones.
//
//   0  nothing has run: `real` resolves itself, FdTable and HiddenFds are empty, every call passes through
//   1  libsdp.so's constructor, or the first socket() if that comes earlier: real calls looked up, process id
//   noted, fork hooks 2  the first managed socket: configuration reported, the embedded RNIC's system calls
//   set, hooks of the socket room live
//
// A process that never makes a stream socket stays in stage 1: no thread, no allocation, no descriptor.
#ifndef SDP_PRELOAD_STARTUP_H_
#define SDP_PRELOAD_STARTUP_H_

namespace sdp::preload {

// Stage 2, once; later calls cost a load.
void EnsureStarted();
// True from stage 2 on: there are, or were, managed sockets in this process.
bool Started();

// What is to be done first when the process ends, by exit() or return from main.
void SetExitHook(void (*hook)());

// False in a child made by vfork() or a clone() that shares our memory, which may share our memory but not
// our descriptors: nothing of ours may change there, so calls that close or duplicate descriptors go to the
// kernel alone. A child of fork() owns its copy. One getpid().
bool OwnsProcess();

// What the C library's fork calls by itself: for a process that is made past it. In the thread that makes it.
void BeforeFork();
void AfterForkInParent();
void AfterForkInChild();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_STARTUP_H_
