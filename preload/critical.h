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
  // still wait run first.
  static void BeforeJump() {
    if (late_ != nullptr && depth_ == 0) [[unlikely]]
      RunRest();
  }
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

  static void Handle(int number, siginfo_t* info, void* context);
  static struct sigaction Installed(int number, const struct sigaction& given);
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
