// Descriptors that the library keeps for itself in the application's process. They have high numbers, so that
// the application gets the lowest free number as it expects. They are close-on-exec, and the application's
// own close, dup2 and close_range do not reach them. Lock-free; any thread may call.
#ifndef SDP_PRELOAD_HIDDEN_FDS_H_
#define SDP_PRELOAD_HIDDEN_FDS_H_

#include <sys/resource.h>

#include <atomic>

namespace sdp::preload {

class HiddenFds {
 public:
  // Of a higher limit of descriptors only so many numbers are used.
  static constexpr rlim_t kHighestLimit = 65536;
  // Moves `fd` to the upper quarter of the numbers that RLIMIT_NOFILE's soft limit allows (of the first 65536
  // at most). Returns the new number, or -1 with errno; `fd` is closed in either case.
  static int Hide(int fd);
  // Returns a hidden duplicate of `fd`, which stays open; -1 with errno.
  static int Duplicate(int fd);
  // Also works for a number that MakeRoom has moved meanwhile. Does nothing for -1.
  static void Close(int hidden_fd);
  // Stops hiding an untracked descriptor, which its owner is about to close.
  static void Reveal(int hidden_fd);
  static bool Contains(int fd);
  // Returns the lowest hidden number in [first, last], or -1.
  static int Next(int first, int last);
  // Returns the highest number below `end` at which the application has a descriptor open, or -1. Returns
  // `end` - 1 if that cannot be found out, or if no hidden number is beyond an fd_set.
  static int HighestOther(int end);
  // The application is about to use number `fd` itself (dup2, dup3). A hidden descriptor there gets another
  // number, and the variable registered with HideTracked changes. `fd` itself stays open, for dup2 to replace
  // in one step. If Contains(fd) is still true, the descriptor could not move: it is untracked, or no number
  // is left.
  static void MakeRoom(int fd);
  // Hide(), and keeps *slot up to date when the number moves. The slot must live until Close(*slot).
  static int HideTracked(int fd, std::atomic<int>* slot);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_HIDDEN_FDS_H_
