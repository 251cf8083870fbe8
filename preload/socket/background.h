// The one helper thread of a process, started when first needed. It moves what nobody is in a call for: data
// that waits for credit, the answer to a handshake, a closed connection's last bytes.
//
// Tasks are given a moment (kGrace) before the helper touches them, since most of the time the application is
// back in a call at once and does the work itself.
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

  // Has the helper run `task` after a moment of grace (or at once). Idempotent while the helper has it. False
  // if no thread can be started; then the task is done by who waits (RunInline), at the process's end, or by
  // a thread that can be had later.
  static bool Add(Task* task, Duration grace = kGrace);
  // False: the helper does not know the task and will not touch it until it is added.
  static bool Holds(const Task* task);
  // Where there is no helper, because the process table is full: what is due is done here and now, in the
  // thread of a call that is about to wait and holds no lock. Returns when to look again; kNever: nothing
  // waits.
  static Time RunInline() { return threadless_.load(std::memory_order_relaxed) ? RunUndone() : kNever; }
  // The helper forgets everything, because it does not exist in this process (a child of fork).
  static void ForgetAfterFork();
  // Finishes, in the calling thread, what the tasks' owners have to send before the process ends.
  static void FinishAtExit(void (*finish)(Socket* owner, void* context), void* context);
  // From a signal handler: the helper does `work` and nothing else any more, and lets nobody fork. False:
  // there is none.
  static bool TakeOver(void (*work)());
  // HiddenFds::MakeRoom has given a file of the library's another number, and the old one is about to stand
  // for a file of the program's. Returns when the helper does not poll by the old one any more.
  static void FollowNumbers();
  // Around fork. First, with no lock held: the helper comes to rest, in its sleep, and stays there, so that
  // the child gets neither its half-done work nor a lock of the program's allocator that nobody there would
  // unlock. Then the lock; the last lets go of both.
  static void RestForFork();
  static void LockForFork();
  static void UnlockAfterFork();
  // The helper ends, and with it all that the kernel has of it; its tasks wait until Resume() starts another.
  // Only if the program has no other thread than the caller, which holds no lock; returns whether that is so.
  static bool EndIfAlone();
  // The same, if no socket's task waits: behind a seccomp filter the program could not wake the helper.
  static void EndIfIdle();
  static void Resume();
  static bool Runs() { return runs_.load(std::memory_order_relaxed); }
  // True on the helper's own thread.
  static bool IsHelperThread();

 private:
  // The main thread ends: from now on the helper looks whether any other thread is left.
  static void NoteMainThreadEnd();
  struct State;
  static State& state();
  static void* Main(void*);
  static bool StartThread();
  static bool EnsureThread(Time now);
  static void RunTasks(const std::vector<pollfd>& fds);
  static Time RunUndone();

  static std::atomic<bool> runs_;  // the helper, and whoever sees it may use the state without its lock
  static std::atomic<void (*)()> last_work_;
  static std::atomic<bool> threadless_;  // tasks wait, and no thread could be had for them
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_BACKGROUND_H_
