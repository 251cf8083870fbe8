// A signal handler may call send, recv, close and poll (POSIX), on the very socket in whose call it
// interrupts its thread. So the library's locks hold handlers off: one that comes while its thread has a lock
// runs as soon as the thread has none. That costs two increments of a thread's own counter; the handlers pay,
// not the calls.
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
  // A handler may be running in this thread, and may have interrupted malloc, or the owner of a lock. While
  // one runs, at least its signal is blocked.
  static bool MayBeInHandler();
  // One of the program's, for all that is known: a thread that blocks signals is in none, nor is one that has
  // jumped out with its mask.
  static bool IsInHandler();
  // The thread is about to jump, out of a handler perhaps that a section ran behind it: what waits behind
  // that one has its turn first. `leaves`: also out of the call that a handler has interrupted.
  static void BeforeJump(bool leaves) {
    if (leaves && broken_off_ >= 0) [[unlikely]]
      broken_off_ = kNothingBrokenOff;
    if (late_ != nullptr && depth_ == 0) [[unlikely]]
      RunRest();
  }
  // In the child of a fork that a handler makes: the system call on `fd` that it has interrupted would take
  // what is the parent's, and is not to be begun again, whatever SA_RESTART says.
  static void BreakOff(int fd) { broken_off_ = fd; }
  // Ahead of such a call, which a handler that was held off may have found not yet begun: it is not to begin.
  static bool BreaksOff(int fd) {
    if (broken_off_ != fd) [[likely]]
      return false;
    broken_off_ = kHasBrokenOff;
    return true;
  }
  // Behind such a call: it was broken off, and the caller does what the handler's return would have done.
  static bool TakeBrokenOff() { return std::exchange(broken_off_, kNothingBrokenOff) == kHasBrokenOff; }
  // The same for another thread, which is in a link's read, or on its way out of it to a lock that the caller
  // has: by a signal that has our handler alone and that the thread does not block. False: there is none, or
  // it does not come.
  static bool EndLinkRead(pthread_t thread, pid_t tid);
  // Before an exec that happens in a critical section: the program gets the thread's own mask. What waits and
  // stands at SIG_DFL, with nobody in its place any more, has its effect.
  static void UnblockForExec();
  // In the child of a fork: what the parent's thread deferred is the parent's.
  static void ForgetAfterFork();

  // Puts a handler of the application's behind Handle(), as sigaction(2) and its elder relatives want it;
  // results and errno are theirs. Signals that report an error of the thread's own are never held off.
  static int SetAction(int number, const struct sigaction* action, struct sigaction* old);

  // Handlers that this thread has run, and those of them that were not installed with SA_RESTART.
  struct Handled {
    unsigned all;
    unsigned interrupting;
  };
  static Handled handled() { return {.all = handled_, .interrupting = interrupting_}; }

  // Where one of `signals` stands, or comes to stand, at SIG_DFL, `action` runs in place of that, held off as
  // a handler is; whoever asks is told SIG_DFL. `interrupted`: with the mask that the thread had. Until
  // StandAside(). Both are false, and do nothing, in a child of vfork.
  using DefaultAction = void (*)(int number, const ucontext_t& interrupted);
  static bool StandIn(const sigset_t& signals, DefaultAction action);
  static bool StandAside();
  // Does it, for this one, now?
  static bool StandsIn(int number);
  // Ends the process as the signal by itself would: all but the first of a PID namespace.
  static void TakeDefault(int number);

 private:
  struct Late;

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
  // See handled(). A handler that interrupts another counts for itself.
  static inline thread_local volatile unsigned handled_ __attribute__((tls_model("initial-exec"))) = 0;
  static inline thread_local volatile unsigned interrupting_ __attribute__((tls_model("initial-exec"))) = 0;
  // How many handlers wait.
  static inline thread_local volatile sig_atomic_t pending_ __attribute__((tls_model("initial-exec"))) = 0;
  // A descriptor, or one of those two.
  static inline thread_local int broken_off_ __attribute__((tls_model("initial-exec"))) = kNothingBrokenOff;
  // Whose handlers RunDeferred() is running, the innermost.
  static inline thread_local Late* late_ __attribute__((tls_model("initial-exec"))) = nullptr;
};

// A lock of the library's. Nobody sleeps with it in a system call that a signal ends.
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
