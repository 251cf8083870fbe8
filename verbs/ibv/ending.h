// How one connection over a kernel RNIC ends: in order, because work failed or was refused, or at once. This
// part also notes the cause that the owner reads.
//
// Ending changes the device's state and remembers the reason. Sends (sends.h) then completes the outstanding
// work. The lock of the connection's owner guards this object.
#ifndef SDP_VERBS_IBV_ENDING_H_
#define SDP_VERBS_IBV_ENDING_H_

#include <string>

#include "verbs/ibv/ibv_resources.h"
#include "verbs/rnic_types.h"

namespace sdp::ibv {

class Ending {
 public:
  // `resources` has a queue pair. It and `facts` outlive this.
  Ending(Resources& resources, verbs::LinkFacts& facts) : resources_(resources), facts_(facts) {}

  // Returns true if the connection is over; the facts have the cause.
  [[nodiscard]] bool ended() const { return ended_; }
  // Returns true if the device has refused work, so nothing may follow it. The next read ends the connection.
  [[nodiscard]] bool broken() const { return broken_; }

  // --- The end in order. The owner asks for it. Disconnect() follows once the device has sent everything,
  // because a disconnect stops the device.
  void AskDisconnect() { disconnect_asked_ = true; }
  [[nodiscard]] bool disconnect_asked() const { return disconnect_asked_; }
  [[nodiscard]] bool disconnected() const { return disconnected_; }
  void Disconnect();  // once; further calls do nothing

  // --- Failures. A failure noted here becomes the cause of a later end.
  // Notes a failure of this host, with the errno.
  void SetFailure(int os_error, std::string text);
  // Notes that a work request has failed. The first one that failed for a reason of its own counts; the rest
  // is flushed, and the connection manager reports the end.
  void NoteFailure(const ibv_wc& wc, const char* what);
  // Returns true if the device has given work back undone: the queue pair is in the error state.
  [[nodiscard]] bool flushed() const { return flushed_; }
  // Returns true if a work request of the peer's, or one of ours at the peer, was wrong.
  [[nodiscard]] bool terminated() const { return failure_.end == verbs::LinkEnd::kTerminated; }
  // Notes that the device refuses work: broken() returns true from now on.
  void Refuse(int error);
  // Notes that an asynchronous event of the device's has ended the connection. End() or Abort() follows.
  void NoteDeviceFailure();

  // --- The end itself. Each returns false if the connection had ended before.
  [[nodiscard]] bool End(verbs::LinkEnd end, std::string text);
  // Ends the connection with the noted failure as its cause.
  [[nodiscard]] bool EndByFailure() { return End(failure_.end, failure_.text); }
  // Ends the connection because the peer has disconnected.
  [[nodiscard]] bool EndByPeer();
  // Ends the connection at once: the peer sees a reset. The cause is the noted failure, or this end's own
  // wish.
  [[nodiscard]] bool Abort();

 private:
  // Makes the device take nothing more and flush what it has.
  void StopDevice();
  [[nodiscard]] bool has_failure() const { return failure_.end != verbs::LinkEnd::kOpen; }

  Resources& resources_;
  verbs::LinkFacts& facts_;
  bool disconnect_asked_ = false;
  bool disconnected_ = false;  // rdma_disconnect() was called
  bool flushed_ = false;
  bool broken_ = false;
  bool ended_ = false;
  verbs::LinkCause failure_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_ENDING_H_
