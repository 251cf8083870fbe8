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

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_FD_TABLE_H_
