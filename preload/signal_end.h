// A signal that ends the process by default (SIGTERM and its like) comes while bytes that send() has taken
// are still in this process's memory. TCP's are in the kernel and arrive all the same. So the library stands
// in for SIG_DFL: what has been sent leaves first, as far as the peer takes it in some seconds, and the end
// of the stream; then the signal does what it would have done, status included.
//
//   the kernel's table   Critical::Handle ── behind a section of the library's ── End ── last words
//                        ── SIG_DFL, raise
//   whoever asks         SIG_DFL
//
// Not for SIGKILL and what dumps core (SIGQUIT, SIGSEGV, SIGABRT), not behind a seccomp filter, which may not
// know the calls, and not for the first process of a PID namespace, which the kernel does not end so. A new
// program finds SIG_DFL; a child of fork has all this, too; one of vfork ends by itself at once.
#ifndef SDP_PRELOAD_SIGNAL_END_H_
#define SDP_PRELOAD_SIGNAL_END_H_

namespace sdp::preload {

class SignalEnd {
 public:
  // From here on. `last_words` is called in a handler, which may have interrupted malloc but none of the
  // library's locks; it takes bounded time.
  static void Guard(void (*last_words)());
  // No more: a filter is about to be set. Whether it did so far.
  static bool Unguard();
  // Around an exec: a signal that our handler has in this thread or another, or is to have later, would be
  // lost with the program.
  class Aside {
   public:
    Aside();
    ~Aside();
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    bool stood_in_;
  };
  // Does not come back where a signal is ending the process: to its other threads it is as good as gone.
  static void AwaitIfUnderWay();
  // The same at the end of a scope, behind all that is declared after it: what a call on a socket would
  // return is made up, the end of a stream that was none first of all.
  struct NoReturn {
    NoReturn() = default;
    NoReturn(const NoReturn&) = delete;
    NoReturn& operator=(const NoReturn&) = delete;
    ~NoReturn() { AwaitIfUnderWay(); }
  };
  // In the child of a fork: that is the parent's end. It may be the first of its namespace.
  static void ForgetAfterFork();
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SIGNAL_END_H_
