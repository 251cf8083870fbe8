// Urgent data of a StreamSocket: the out-of-band byte, the mark, SIGURG. Made for one call; keeps nothing.
// UrgentMark has what lasts.
#ifndef SDP_PRELOAD_SOCKET_URGENT_H_
#define SDP_PRELOAD_SOCKET_URGENT_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Urgent {
 public:
  explicit Urgent(StreamSocket& socket) : s_(socket) {}

  ssize_t ReceiveOutOfBand(std::span<const MutableBytes> room, int flags, int* out_flags);
  void PassMark();
  void TellOwner();
  bool UrgentInterrupts();

 private:
  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_URGENT_H_
