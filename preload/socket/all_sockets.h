// Locks every socket of the process at once: around fork, and while exec is about to replace the program. One
// thread at a time has them. The locks exclude the threads of this process alone.
#ifndef SDP_PRELOAD_SOCKET_ALL_SOCKETS_H_
#define SDP_PRELOAD_SOCKET_ALL_SOCKETS_H_

#include <span>

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class AllSockets {
 public:
  static void Lock();
  // Returns the locked sockets, each once, in the order of the descriptor table. Valid between Lock and
  // Unlock.
  static std::span<StreamSocket* const> locked();
  static void Unlock();
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ALL_SOCKETS_H_
