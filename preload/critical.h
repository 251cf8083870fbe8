// Signal-safe locks. A signal handler may call send, recv, close and poll (POSIX), even on the socket whose
// call it interrupts. So the library's locks hold handlers off: a handler that comes while its thread has a
// lock runs as soon as the thread has none. A lock costs two increments of a thread-local counter; only
// handlers cost more.
#ifndef SDP_PRELOAD_CRITICAL_H_
#define SDP_PRELOAD_CRITICAL_H_

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <mutex>
#include <utility>

namespace sdp::preload {

class Critical {
 public:
  static void Enter() {
    depth_ = depth_ + 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  static void Leave() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    depth_ = depth_ - 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (pending_ != 0 && depth_ == 0) [[unlikely]]
      RunDeferred();
  }
  // Returns whether a handler may be running in this thread, and may have interrupted malloc or the owner of
  // a lock. While a handler runs, at least its signal is blocked.
  static bool MayBeInHandler();
  // Returns whether one of the program's handlers runs, as far as the library knows. A thread that merely
  // blocks signals is in no handler, nor is one that jumped out of a handler with its mask restored.
  static bool IsInHandler();
  // The thread is about to jump, perhaps out of a handler that a section ran at its end. The handlers that
  // still wait run first. `leaves`: the jump also leaves the call that a handler has interrupted.
  static void BeforeJump(bool leaves) {
    if (leaves && broken_off_ != kNothingBrokenOff) [[unlikely]]
      broken_off_ = kNothingBrokenOff;
    if (late_ != nullptr && depth_ == 0) [[unlikely]]
      RunRest();
  }
  // Call before a fork in a handler: the kernel is not to restart the interrupted system call on `fd`,
  // whatever SA_RESTART says. Returns false if it restarts the call nevertheless.
  static bool BreakOff(int fd) {
    broken_off_ = fd;
    return kEndsCalls;
  }
  // Call before such a system call, since a delayed handler may have run before the call began. Returns true
  // if the call is not to begin.
  static bool BreaksOff(int fd) {
    if (broken_off_ != fd) [[likely]]
      return false;
    broken_off_ = kHasBrokenOff;
    return true;
  }
  // Call after such a system call. Returns true if it was broken off; the caller then does what the handler's
  // return would have done.
  static bool TakeBrokenOff() { return std::exchange(broken_off_, kNothingBrokenOff) == kHasBrokenOff; }
  // Breaks off the link's read that another thread is in. That thread may be on its way from the read to a
  // lock that the caller holds. Sends a signal that only the library handles and that the thread does not
  // block. Returns false if there is no such signal or if it does not arrive.
  static bool EndLinkRead(pthread_t thread, pid_t tid);
  // Call before an exec inside a critical section: the program gets the thread's own mask. A waiting signal
  // whose action is SIG_DFL, for which the library no longer stands in, takes effect.
  static void UnblockForExec();
  // Call in the child of a fork: the deferred signals are the parent's.
  static void ForgetAfterFork();

  // Installs the application's handler behind Handle(), with the results and errno of sigaction(2) and its
  // older relatives. Signals that report an error of the thread itself are never held off.
  static int SetAction(int number, const struct sigaction* action, struct sigaction* old);

  // Counts the handlers that this thread has run, and those of them that were installed without SA_RESTART.
  struct Handled {
    unsigned all;
    unsigned interrupting;
  };
  static Handled handled() { return {.all = handled_, .interrupting = interrupting_}; }

  // From now until StandAside(), `action` runs in place of SIG_DFL for `signals`, held off as a handler is. A
  // program that asks for the action still gets SIG_DFL. `interrupted` has the thread's own mask. Both
  // functions return false, and do nothing, in a child of vfork.
  using DefaultAction = void (*)(int number, const ucontext_t& interrupted);
  static bool StandIn(const sigset_t& signals, DefaultAction action);
  static bool StandAside();
  // Returns whether `action` stands in for this signal now.
  static bool StandsIn(int number);
  // Ends the process as the signal by itself would, except the first process of a PID namespace.
  static void TakeDefault(int number);

 private:
  struct Late;

#ifdef __x86_64__
  static constexpr bool kEndsCalls = true;
#else
  static constexpr bool kEndsCalls = false;  // SA_RESTART would begin the call again
#endif
  static constexpr int kNothingBrokenOff = -1, kHasBrokenOff = -2;

  static void Handle(int number, siginfo_t* info, void* context);
  static struct sigaction Installed(int number, const struct sigaction& given);
  static void EndInterrupted(void* context);
  static bool IsNudge(const siginfo_t& info);
  static void TakeNudge(void* context);
  static void Run(int number, siginfo_t* info, void* context);
  static void RunLate(int number, siginfo_t* info, const sigset_t& mask);
  static void RunDeferred();
  static bool RunNext(Late& late, const sigset_t& besides);
  static void RunRest();

  static inline thread_local volatile sig_atomic_t depth_ __attribute__((tls_model("initial-exec"))) = 0;
  // See handled(). A handler that interrupts another one counts separately.
  static inline thread_local volatile unsigned handled_ __attribute__((tls_model("initial-exec"))) = 0;
  static inline thread_local volatile unsigned interrupting_ __attribute__((tls_model("initial-exec"))) = 0;
  // The number of handlers that wait.
  static inline thread_local volatile sig_atomic_t pending_ __attribute__((tls_model("initial-exec"))) = 0;
  // A descriptor, or one of the two constants above.
  static inline thread_local int broken_off_ __attribute__((tls_model("initial-exec"))) = kNothingBrokenOff;
  // The innermost RunDeferred() call in progress.
  static inline thread_local Late* late_ __attribute__((tls_model("initial-exec"))) = nullptr;
};

// A lock of the library's. No thread holds it while it sleeps in a system call that a signal ends.
class Mutex {
 public:
  void lock() {
    Critical::Enter();
    mutex_.lock();
  }
  bool try_lock() {
    Critical::Enter();
    if (mutex_.try_lock()) return true;
    Critical::Leave();
    return false;
  }
  void unlock() {
    mutex_.unlock();
    Critical::Leave();
  }

 private:
  std::mutex mutex_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CRITICAL_H_
