// Every socket of the process locked at once: around fork, and while a program is about to take its place.
// One thread at a time; the locks are those of this process's threads alone.
#ifndef SDP_PRELOAD_SOCKET_ALL_SOCKETS_H_
#define SDP_PRELOAD_SOCKET_ALL_SOCKETS_H_

#include <span>

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class AllSockets {
 public:
  static void Lock();
  // Each once, in the descriptor table's order. Between Lock and Unlock.
  static std::span<StreamSocket* const> locked();
  static void Unlock();
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ALL_SOCKETS_H_
