// Signals that end the process by default, such as SIGTERM. Bytes that send() has taken may still be in this
// process's memory; TCP's are in the kernel and arrive all the same. So the library stands in for SIG_DFL.
// First the sent bytes leave, as far as the peer takes them within some seconds, and the end of the stream.
// Then the signal has its usual effect, exit status included.
//
//   the kernel's table   Critical::Handle ── after a section of the library's ── End ── last words
//                        ── SIG_DFL, raise
//   a program's query    SIG_DFL
//
// Does not apply to SIGKILL and to signals that dump core (SIGQUIT, SIGSEGV, SIGABRT). Nor behind a seccomp
// filter, which may not allow the calls, nor to the first process of a PID namespace, which such signals do
// not end. A new program finds SIG_DFL. A child of fork has all this, too; a child of vfork ends at once, by
// itself.
#ifndef SDP_PRELOAD_SIGNAL_END_H_
#define SDP_PRELOAD_SIGNAL_END_H_

namespace sdp::preload {

class SignalEnd {
 public:
  // Starts standing in. `last_words` runs in a handler, which may have interrupted malloc but no owner of the
  // library's locks. Its run time is bounded.
  static void Guard(void (*last_words)());
  // Stops standing in, because a filter is about to be set. Returns whether the library stood in.
  static bool Unguard();
  // Stops standing in during an exec. Otherwise a signal would be lost with this program, if our handler has
  // it in any thread or would get it later.
  class Aside {
   public:
    Aside();
    ~Aside();
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    bool stood_in_;
  };
  // Does not return if a signal is ending the process: to its other threads the process already counts as
  // gone.
  static void AwaitIfUnderWay();
  // Waits likewise at the end of a scope, after the destructors of everything declared below it. The result
  // of a call on a socket would be wrong then: for example an end of stream that was none.
  struct NoReturn {
    NoReturn() = default;
    NoReturn(const NoReturn&) = delete;
    NoReturn& operator=(const NoReturn&) = delete;
    ~NoReturn() { AwaitIfUnderWay(); }
  };
  // Call in the child of a fork: the parent is ending, not the child. The child may be the first process of
  // its namespace.
  static void ForgetAfterFork();
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SIGNAL_END_H_
