// A StreamSocket around a fork. Made for one call; keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_FORKING_H_
#define SDP_PRELOAD_SOCKET_FORKING_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Forking {
 public:
  explicit Forking(StreamSocket& socket) : s_(socket) {}

  // Locks the socket until UnlockAfterFork(), by the same thread. Returns false if it is locked for this fork
  // already.
  bool LockForFork();
  void UnlockAfterFork();
  // Before ShareWithChild(), asks back memory that the peer knows of, which keeps the connection to this
  // process (SDP 9.5.4, 9.5.5). Waits for a receive buffer to come back; a copy replaces a send buffer.
  void SettleLoans(Time deadline);
  // Before the fork: the child is to hold the connection, too, where that is possible.
  void ShareWithChild();
  // In the child of a fork, leaves to the parent what is not shared. The caller holds the lock.
  void DisownAfterFork();
  // In the parent: tells the listener, and has the helper bring lent memory back.
  void NoteForkInParent();

 private:
  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_FORKING_H_
