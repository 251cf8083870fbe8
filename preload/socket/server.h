// A StreamSocket that listens. Made for one call; keeps nothing. Listener has what lasts.
#ifndef SDP_PRELOAD_SOCKET_SERVER_H_
#define SDP_PRELOAD_SOCKET_SERVER_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Server {
 public:
  explicit Server(StreamSocket& socket) : s_(socket) {}

  // The listener is there: the socket listens.
  void EnterListening(int fd);
  // Ends the listener in all processes. The kernel answers for `fd` from here on.
  void StopListening(int fd);
  // Returns true if another process has shut the listener down. Then this process stops listening, too.
  bool WasShutDown();

 private:
  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SERVER_H_
