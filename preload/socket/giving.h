// A StreamSocket that goes to another program: as the program that gives it, and as the one that takes it up.
// Made for one call; keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_GIVING_H_
#define SDP_PRELOAD_SOCKET_GIVING_H_

#include "preload/inheritance.h"
#include "preload/socket/guests.h"
#include "preload/socket/handover.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Giving {
 public:
  explicit Giving(StreamSocket& socket) : s_(socket) {}

  // Adds what another program has to know to take over this socket. The caller holds own().
  void HandOver(uint64_t inode, Giver giver, Guests& guests, Handover* out, HandoverFds* fds);
  // Returns true if other processes hold the connection, too.
  bool IsShared();
  // Asks the peer to let go of lent memory and of its copies, which keep a connection to this process. Waits
  // for the answer, for a second at most.
  void SettleToGive();
  // Takes the connection up. `front`: its front, used while another process has the state. Returns false if
  // there is no such connection any more.
  [[nodiscard]] bool TakeUp(Bytes front);
  // Takes the listener over. Returns false if the kernel answers for the listener from here on.
  [[nodiscard]] bool TakeUpListening(const Handover::Listener& from, const Handover::ListenerFds& fds);

 private:
  bool GiveConnection(Giver giver, Guests& guests, Handover::Connection* out);
  [[nodiscard]] bool ComeToRest(Time deadline);

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_GIVING_H_
