// Descriptor number -> Socket, for every number a kernel can allow. A number it does not know costs one
// look-up without a lock; nothing here ever waits, so that all of it may be called from signal handlers.
#ifndef SDP_PRELOAD_FD_TABLE_H_
#define SDP_PRELOAD_FD_TABLE_H_

#include "preload/socket/socket.h"

namespace sdp::preload {

class FdTable {
 public:
  // The socket behind `fd`, empty for a number that is not ours (or out of range). Safe against a concurrent
  // Remove.
  static SocketRef Get(int fd);
  // True if `fd` may be a socket of ours: the fast check, no reference taken.
  static bool Has(int fd);
  // Enters `socket` (the table takes a reference of its own). What stood there is dropped.
  static void Set(int fd, Socket* socket);
  // Empty if nothing stood there, or something other than `expected` (when not null).
  static SocketRef Remove(int fd, const Socket* expected = nullptr);
  // Calls `visit` for every entry; entries made or dropped meanwhile may be missed.
  static void ForEach(void (*visit)(int fd, Socket* socket, void* context), void* context);

 private:
  // The reference a word of the table stood for, once the word is no longer in the table.
  static SocketRef ReturnBatch(uint64_t word);
};

// Descriptors the library keeps for itself in the application's process: high numbers (the application sees
// the lowest free number as it expects), close-on-exec, and protected from the application's own close, dup2
// and close_range. Lock-free.
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

#endif  // SDP_PRELOAD_FD_TABLE_H_
