// Notes the end of the process's first thread. The kernel keeps the process alive while any other thread
// runs, even if only the library's helper thread does. So the helper thread has to learn of that end.
#ifndef SDP_PRELOAD_MAIN_THREAD_H_
#define SDP_PRELOAD_MAIN_THREAD_H_

namespace sdp::preload {

class MainThread {
 public:
  // Call in the first thread, as early as possible. From here on its end by pthread_exit or cancellation is
  // noted.
  static void Expect();
  // Call in the first thread when it is about to end.
  static void NoteEnd();
  static bool HasEnded();
  // NoteEnd() calls `listener`.
  static void SetListener(void (*listener)());
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_MAIN_THREAD_H_
