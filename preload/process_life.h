// What the socket room does when the process forks or ends. Implemented there; startup.cc calls these once
// stage 2 is reached.
#ifndef SDP_PRELOAD_PROCESS_LIFE_H_
#define SDP_PRELOAD_PROCESS_LIFE_H_

namespace sdp::preload {

// What the readiness room does around a fork. Its table's lock comes before the sockets' locks, its sets' own
// locks after them.
struct ReadinessAtFork {
  void (*lock_table)() = [] {};
  void (*lock_sets)() = [] {};
  void (*disown_in_child)() = [] {};  // before unlock
  void (*unlock)() = [] {};
};
// Before the first fork with a managed socket.
void SetReadinessAtFork(const ReadinessAtFork& steps);

// In the forking thread, before fork(): take every lock, so that the child finds consistent state.
void PrepareFork();
// In the parent after fork(), also after one that failed.
void ParentAfterFork();
// In the child: the only thread left is the one that forked.
void ChildAfterFork();
// From libsdp.so's destructor, after the program's atexit handlers, on exit() and return from main. Other
// threads may still run.
void ProcessExit();
// From _exit(), which may be called in a signal handler at any moment: then it waits for nothing and
// allocates nothing, and peers learn of the end where that takes no more than a message. Else the same as
// ProcessExit().
void ProcessExitAtOnce();
// A signal that ends the process by default lets it do the same first, from the first connection on
// (signal_end.h).
void ExpectSignals();

// Around a call that the kernel refuses a process with more than one thread, or that leaves a thread of ours
// behind with what the program has had till then (descriptors, namespaces): if the program has one thread,
// the library has none until the second. Returns whether the caller is the only thread.
bool BeforeCallOfOneThread();
void AfterCallOfOneThread();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_PROCESS_LIFE_H_
