// The end of the thread that the process began with. The kernel keeps such a process as long as it has any
// other thread, were it only the library's helper: so the helper has to hear of it.
#ifndef SDP_PRELOAD_MAIN_THREAD_H_
#define SDP_PRELOAD_MAIN_THREAD_H_

namespace sdp::preload {

class MainThread {
 public:
  // In that thread, as early as may be: its end by pthread_exit, or by a cancellation, is heard of from here
  // on.
  static void Expect();
  // In that thread, which is about to end.
  static void NoteEnd();
  static bool HasEnded();
  // Called by NoteEnd().
  static void SetListener(void (*listener)());
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_MAIN_THREAD_H_
