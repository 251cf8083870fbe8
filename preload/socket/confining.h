// A StreamSocket whose process is about to set a seccomp filter (preload/confinement.h). Made for one call;
// keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_CONFINING_H_
#define SDP_PRELOAD_SOCKET_CONFINING_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Confining {
 public:
  explicit Confining(StreamSocket& socket) : s_(socket) {}

  // Finds out by system calls what can be used behind the filter.
  void Prepare(int fd);
  // After all sockets have prepared: a listener waits until `give_up` for what other processes have taken on.
  void Finish(Time give_up);

 private:
  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CONFINING_H_
