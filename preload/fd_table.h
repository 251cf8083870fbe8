// Maps descriptor numbers to Sockets, for every number that a kernel can allow. An unknown number costs one
// look-up without a lock. No function here ever waits, so signal handlers may call all of them.
#ifndef SDP_PRELOAD_FD_TABLE_H_
#define SDP_PRELOAD_FD_TABLE_H_

#include "preload/socket/socket.h"

namespace sdp::preload {

class FdTable {
 public:
  // Returns the socket behind `fd`, or an empty reference for a number that is not managed or out of range.
  // Safe against a concurrent Remove.
  static SocketRef Get(int fd);
  // Returns whether `fd` may be a managed socket: a fast check that takes no reference.
  static bool Has(int fd);
  // Enters `socket`; the table takes a reference of its own. Drops what stood there before.
  static void Set(int fd, Socket* socket);
  // Removes and returns the entry. Returns an empty reference if there is none, or if it is not `expected`
  // (when that is not null).
  static SocketRef Remove(int fd, const Socket* expected = nullptr);
  // Calls `visit` for every entry. Entries made or removed meanwhile may be missed.
  template <typename Visit>
  static void ForEach(Visit visit) {
    ForEach([](int fd, Socket* socket, void* v) { (*static_cast<Visit*>(v))(fd, socket); }, &visit);
  }
  static void ForEach(void (*visit)(int fd, Socket* socket, void* context), void* context);

 private:
  // Gives back the unused references of a word that has left the table. Returns the one that remains.
  static SocketRef ReturnBatch(uint64_t word);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_FD_TABLE_H_
