// The process's one helper thread, started when first needed. It does the work that no thread is in a call
// for: data that waits for credit, the answer to a handshake, a closed connection's last bytes.
//
// The helper leaves a new task alone for a moment (kGrace). Most of the time the application soon makes
// another call, which does the work itself. The part has its own lock; tasks run without it.
#ifndef SDP_PRELOAD_SOCKET_BACKGROUND_H_
#define SDP_PRELOAD_SOCKET_BACKGROUND_H_

#include <atomic>
#include <vector>

#include "core/base/types.h"
#include "preload/socket/helper_tasks.h"

namespace sdp::preload {

class Background {
 public:
  static constexpr Duration kGrace = std::chrono::milliseconds(2);

  using Wait = HelperWait;
  using Task = HelperTask;

  // Has the helper run `task` after `grace`. Idempotent while the helper has the task. Returns false if no
  // thread can be started. Then a waiting thread does the task (RunInline), or a later helper, or the process
  // at its end.
  static bool Add(Task* task, Duration grace = kGrace);
  // Returns false if the helper does not have the task, and will not touch it until it is added.
  static bool Holds(const Task* task);
  // For a process that cannot have a helper, because the process table is full: does the due tasks in the
  // calling thread. The caller is about to wait and holds no lock. Returns when to look again; kNever:
  // nothing waits.
  static Time RunInline() { return threadless_.load(std::memory_order_relaxed) ? RunUndone() : kNever; }
  // In a child of fork, where the helper does not exist: forgets all tasks.
  static void ForgetAfterFork();
  // At the process's end: returns the tasks' owners, which may still have something to send.
  static std::vector<SocketRef> Owners();
  // From a signal handler: the helper does `work` and from then on nothing else, and lets no thread fork.
  // Returns false if there is no helper.
  static bool TakeOver(void (*work)());
  // HiddenFds::MakeRoom has moved one of the library's files to another number, and the old number is about
  // to become a file of the program's. Returns once the helper no longer polls the old number.
  static void FollowNumbers();
  // Around fork. RestForFork() comes first, with no lock held: it keeps the helper asleep. So the child gets
  // neither half-done work nor an allocator lock that no thread there would unlock. LockForFork() takes the
  // lock of this part; UnlockAfterFork() releases both.
  static void RestForFork();
  static void LockForFork();
  static void UnlockAfterFork();
  // Ends the helper and waits until the kernel has nothing left of it; the tasks wait until Resume() starts
  // another. Only if the program has no thread except the caller, which holds no lock. Returns whether that
  // is so.
  static bool EndIfAlone();
  // EndIfAlone(), but only if no socket's task waits: under a seccomp filter the program could not wake the
  // helper.
  static void EndIfIdle();
  static void Resume();
  static bool Runs() { return runs_.load(std::memory_order_relaxed); }

 private:
  // The main thread ends: from now on the helper checks whether any other thread is left.
  static void NoteMainThreadEnd();
  struct State;
  static State& state();
  static void* Main(void*);
  static bool StartThread();
  static bool EnsureThread(Time now);
  static void RunTasks(const std::vector<pollfd>& fds);
  static Time RunUndone();

  static std::atomic<bool> runs_;  // there is a helper; state() may then be used without its lock
  static std::atomic<void (*)()> last_work_;
  static std::atomic<bool> threadless_;  // tasks wait, and no thread could be started for them
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_BACKGROUND_H_
