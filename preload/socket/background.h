// The one helper thread of a process, started when first needed. It moves what nobody is in a call for: data that waits for credit,
// the answer to a handshake, a closed connection's last bytes.
//
// Tasks are given a moment (kGrace) before the helper touches them, since most of the time the application is back in a call at once and
// does the work itself.
#ifndef SDP_PRELOAD_SOCKET_BACKGROUND_H_
#define SDP_PRELOAD_SOCKET_BACKGROUND_H_

#include "core/base/types.h"
#include "preload/socket/socket.h"

namespace sdp::preload {

class Background {
 public:
  static constexpr Duration kGrace = std::chrono::milliseconds(2);

  // What a task waits for next.
  struct Wait {
    bool done = false;      // the helper drops the task
    int fd = -1;            // -1: only the deadline
    short events = 0;       // of poll
    Time deadline = kNever;
  };

  class Task {
   public:
    virtual ~Task() = default;
    // On the helper's thread, whenever what it waited for has come. Must not block.
    virtual Wait Run(Time now) = 0;
    // The socket that owns the task; the helper holds a reference while it has the task.
    virtual Socket* owner() = 0;

   private:
    friend class Background;
    uint32_t queued_in_ = 0;   // the process generation whose helper has it; 0: none. Guarded by Background.
    bool added_again_ = false;  // while the helper had it; guarded by Background
  };

  // Has the helper run `task` after a moment of grace (or at once). Idempotent while the helper has it. False if no thread can be
  // started.
  static bool Add(Task* task, Duration grace = kGrace);
  // False: the helper does not know the task and will not touch it until it is added.
  static bool Holds(const Task* task);
  // The helper forgets everything, because it does not exist in this process (a child of fork).
  static void ForgetAfterFork();
  // Finishes, in the calling thread, what the tasks' owners have to send before the process ends.
  static void FinishAtExit(void (*finish)(Socket* owner, void* context), void* context);
  // Locks out the helper around fork.
  static void LockForFork();
  static void UnlockAfterFork();
  // True on the helper's own thread.
  static bool IsHelperThread();

 private:
  struct State;
  struct Item;
  static State& state();
  static void* Main(void*);
  static bool StartThread();
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_BACKGROUND_H_
