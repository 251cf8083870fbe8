// How a StreamSocket uses a connection that several processes hold. Each has a copy of its state. A process
// that uses the connection takes the newest state first, and leaves what became of it. Alone again, it goes
// on without all this. Made for one call; keeps nothing. Share has what lasts.
#ifndef SDP_PRELOAD_SOCKET_HOLDERS_H_
#define SDP_PRELOAD_SOCKET_HOLDERS_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Holders {
 public:
  explicit Holders(StreamSocket& socket) : s_(socket) {}

  // With own() locked. EnterShared() takes the shared lock and the newest state. LeaveShared() leaves the
  // state to the other processes, and unlocks.
  void EnterShared();
  void LeaveShared();
  [[nodiscard]] bool ThawShared();
  // Notes that the lock was taken only for a look. If nothing has changed when it is released, the other
  // processes keep the state that they have.
  void OnlyLooks();
  // Leaves the state to the other processes. Returns false if it is too large.
  bool FreezeShared();
  // Returns the front: the socket's own part of the shared state.
  std::vector<std::byte> FreezeFront();
  // Takes the front; another process will leave the rest (Share::elsewhere). Returns false if the bytes are
  // no front.
  [[nodiscard]] bool ExpectShared(Bytes front);
  // Begins to share the process's own connection. Returns false without a place for it.
  // SharedConnection::Lock() comes next.
  [[nodiscard]] bool StartSharing();
  // StopSharing: this process alone holds the connection, with all its state. DropShared: this process no
  // longer holds the connection.
  void StopSharing();
  void DropShared();
  // Returns true, with the shared lock, if other processes hold the connection and it needs nothing of this
  // one. The caller holds own() alone.
  bool OthersGoOn();
  // With the shared lock: the connection is the others' from here on.
  void ForgetShared();
  // For _exit and signal handlers. Returns true if this process has to end the connection, and has its newest
  // state.
  bool FinishSharedAtOnce();
  // Returns true if this process has something to finish before the other holders of the connection can go on
  // without it.
  [[nodiscard]] bool keeps_from_others() const {
    return s_.session_->has_unsent() || (s_.lending_.offered() && !s_.session_->link_ended());
  }
  // With the shared lock, which it gives back: the connection is lost for all who have it.
  void BreakShared();
  // Waits until foreign() no longer holds, as for a peer that takes nothing, or says nothing. Returns 0,
  // EAGAIN, EINTR, EBADF if the socket was closed, or EIO if it is foreign for ever. `deadline`: of the whole
  // call; if it has none yet, `timeout` (0: without end) from now.
  int AwaitConnection(Lock& lock, bool nonblocking, Duration timeout, Time* deadline);
  // Locks the socket. Waits a moment for a process that keeps the connection.
  Lock LockWithOwner();

 private:
  void PublishShared();
  template <typename Archive>
  void VisitShared(Archive& ar);
  void LoseShared();
  // Waits a moment for the process that keeps the connection, and only once. For calls that cannot return
  // EAGAIN.
  void AwaitOwner(Lock& lock);

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_HOLDERS_H_
