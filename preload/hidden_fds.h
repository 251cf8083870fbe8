// Descriptors the library keeps for itself in the application's process: high numbers (the application sees
// the lowest free number as it expects), close-on-exec, and protected from the application's own close, dup2
// and close_range. Lock-free.
#ifndef SDP_PRELOAD_HIDDEN_FDS_H_
#define SDP_PRELOAD_HIDDEN_FDS_H_

#include <atomic>

namespace sdp::preload {

class HiddenFds {
 public:
  // Moves `fd` out of the application's way, to the upper quarter of the numbers RLIMIT_NOFILE's soft limit
  // allows (of the first 65536 at most); the number it now has, or -1 with errno (then `fd` is closed).
  static int Hide(int fd);
  // A hidden duplicate of `fd`, which stays as it is; -1 with errno.
  static int Duplicate(int fd);
  // Also right with a number that MakeRoom has meanwhile moved.
  static void Close(int hidden_fd);
  // Hidden no longer: whoever has it, untracked, is about to close it.
  static void Reveal(int hidden_fd);
  static bool Contains(int fd);
  // The lowest hidden number in [first, last], or -1.
  static int Next(int first, int last);
  // The highest number below `end` at which the application has a descriptor open, -1 if there is none; `end`
  // - 1 where that cannot be asked, and where no number of ours is beyond an fd_set.
  static int HighestOther(int end);
  // The application is about to use number `fd` itself (dup2, dup3): whatever of ours stands there gets
  // another number and its owner's variable, registered with HideTracked, changes. `fd` itself stays open,
  // for dup2 to replace in one step. Contains(fd) afterwards says that it could not move: it is not tracked,
  // or there is no number left.
  static void MakeRoom(int fd);
  // Hide() and keep *slot up to date when the number moves. The slot must live until Close(*slot).
  static int HideTracked(int fd, std::atomic<int>* slot);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_HIDDEN_FDS_H_
