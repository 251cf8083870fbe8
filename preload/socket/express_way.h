// The express way of a StreamSocket's sends and receives (stream_socket_express.cc). Made for one call; keeps
// nothing.
#ifndef SDP_PRELOAD_SOCKET_EXPRESS_WAY_H_
#define SDP_PRELOAD_SOCKET_EXPRESS_WAY_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::ExpressWay {
 public:
  explicit ExpressWay(StreamSocket& socket) : s_(socket) {}

  // At the end of a call, with the lock held: opens the way if nothing is unusual. `inside`: how many threads
  // are in calls, the caller included.
  void Open(int inside);
  // Send and Receive return nothing if the call is to go the usual way, Receive then with `*taken` bytes.
  std::optional<ssize_t> Send(const iovec& piece, int flags);
  std::optional<ssize_t> Receive(const iovec& piece, int flags, size_t* taken);

 private:
  std::optional<ssize_t> ReceiveLeftovers(MutableBytes room);
  bool ComesSoon(int flags);
  [[nodiscard]] bool Blocks(int flags) const {
    return (flags & MSG_DONTWAIT) == 0 && !s_.numbers_.nonblocking();
  }
  void Finish(ExpressLock& lock);

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_EXPRESS_WAY_H_
