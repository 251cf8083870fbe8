// What the socket room does when the process forks or ends. The socket room implements these functions;
// startup.cc calls them from stage 2 on.
#ifndef SDP_PRELOAD_PROCESS_LIFE_H_
#define SDP_PRELOAD_PROCESS_LIFE_H_

namespace sdp::preload {

// What the readiness room does around a fork. The lock order is: its table, the sockets, its sets.
struct ReadinessAtFork {
  void (*lock_table)() = [] {};
  void (*lock_sets)() = [] {};
  void (*disown_in_child)() = [] {};  // before unlock
  void (*unlock)() = [] {};
};
// Call before the first fork with a managed socket.
void SetReadinessAtFork(const ReadinessAtFork& steps);

// Call in the forking thread before fork(). Takes every lock, so that the child finds a consistent state.
void PrepareFork();
// Call in the parent after fork(), even if it failed.
void ParentAfterFork();
// Call in the child, whose only thread is the one that forked.
void ChildAfterFork();
// Runs on exit() and return from main, after the program's atexit handlers and the destructors. Other threads
// may still run.
void ProcessExit();
// Runs on _exit(), which a signal handler may call at any moment. In a handler it waits for nothing and
// allocates nothing; peers learn of the end if one message suffices. Otherwise it is ProcessExit().
void ProcessExitAtOnce();
// From the first connection on: a signal that ends the process by default lets the connections finish first
// (signal_end.h).
void ExpectSignals();

// Call around a call that the kernel refuses to a process with several threads. Also around one that would
// leave the library's thread with the program's old descriptors or namespaces. If the program has one thread,
// the library has none until AfterCallOfOneThread(). Returns whether the caller is the only thread.
bool BeforeCallOfOneThread();
void AfterCallOfOneThread();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_PROCESS_LIFE_H_
