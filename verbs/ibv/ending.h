// How one connection over a kernel RNIC ends: in order, because work failed or was refused, or at once; and
// what the owner is told as the cause.
//
// Ending changes the device's state and remembers why. The work that is outstanding then is completed by
// Sends (sends.h).
#ifndef SDP_VERBS_IBV_ENDING_H_
#define SDP_VERBS_IBV_ENDING_H_

#include <string>

#include "verbs/ibv/ibv_resources.h"
#include "verbs/rnic_types.h"

namespace sdp::ibv {

class Ending {
 public:
  // `resources` has a queue pair. It and the device's name outlive this.
  Ending(Resources& resources, const std::string& device) : resources_(resources), device_(device) {}

  // The connection is over, and cause() says why.
  [[nodiscard]] bool ended() const { return ended_; }
  // The device has refused work, so nothing may follow it. The next read ends the connection.
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] const verbs::LinkCause& cause() const { return cause_; }

  // --- The end in order. The owner asks for it; Disconnect() follows once the device has sent everything,
  // because disconnecting stops it.
  void AskDisconnect() { disconnect_asked_ = true; }
  [[nodiscard]] bool disconnect_asked() const { return disconnect_asked_; }
  [[nodiscard]] bool disconnected() const { return disconnected_; }
  void Disconnect();  // once; further calls do nothing

  // --- Failures. What is noted here becomes the cause of an end that follows.
  // A failure of this host, with the errno.
  void SetFailure(int os_error, std::string text);
  // A work request has failed. The first one that failed for a reason of its own counts; the rest is flushed,
  // and the connection manager tells of the end.
  void NoteFailure(const ibv_wc& wc, const char* what);
  // The device has given work back undone: the queue pair is in the error state.
  [[nodiscard]] bool flushed() const { return flushed_; }
  // A work request of the peer's, or one of ours at the peer, was wrong.
  [[nodiscard]] bool terminated() const { return failure_.end == verbs::LinkEnd::kTerminated; }
  // The device refuses work: broken() from now on.
  void Refuse(int error);
  // An asynchronous event of the device's has ended the connection. End() or Abort() follows.
  void NoteDeviceFailure();

  // --- The end itself. Each returns false if the connection had ended before.
  [[nodiscard]] bool End(verbs::LinkEnd end, std::string text);
  // With the noted failure as its cause.
  [[nodiscard]] bool EndByFailure() { return End(failure_.end, failure_.text); }
  // The peer has disconnected.
  [[nodiscard]] bool EndByPeer();
  // At once: the peer sees a reset. The cause is the noted failure, or that we wanted it.
  [[nodiscard]] bool Abort();

 private:
  // The device takes nothing more and flushes what it has.
  void StopDevice();
  [[nodiscard]] bool has_failure() const { return failure_.end != verbs::LinkEnd::kOpen; }

  Resources& resources_;
  const std::string& device_;
  bool disconnect_asked_ = false;
  bool disconnected_ = false;  // we have told the connection manager
  bool flushed_ = false;
  bool broken_ = false;
  bool ended_ = false;
  verbs::LinkCause cause_;
  verbs::LinkCause failure_;
};

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_ENDING_H_
