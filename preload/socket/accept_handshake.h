// The accepting peer's side of the set-up of one SDP connection, on a socket that the SDP listener has just
// returned. Owns the connector and, once established, the session; the descriptor stays the caller's. Passive
// and unlocked: its owner calls Step() when what wait() names has come.
#ifndef SDP_PRELOAD_SOCKET_ACCEPT_HANDSHAKE_H_
#define SDP_PRELOAD_SOCKET_ACCEPT_HANDSHAKE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "preload/socket/address.h"
#include "preload/socket/background.h"
#include "preload/socket/options.h"
#include "preload/socket/session.h"

namespace sdp::preload {

class AcceptHandshake {
 public:
  enum class Outcome : uint8_t { kPending, kEstablished, kFailed };

  // `service`: the listener's conventional port; 0 if it is not known. A peer that asks for another one is
  // rejected.
  AcceptHandshake(int fd, const Address& peer, uint16_t service, const ConnectionTuning& tuning, Time now);
  // For a request that a kernel RNIC has brought. `fd` will be the application's descriptor for the
  // connection.
  AcceptHandshake(int fd, const ConnectionTuning& tuning, std::unique_ptr<verbs::Connector> connector)
      : fd_(fd), tuning_(tuning), rnic_(RnicKind::kKernel), connector_(std::move(connector)) {}

  // Never blocks. kFailed: the caller closes the descriptor, and the log has the reason.
  Outcome Step(Time now);
  // Step() for a thread of the program's. A peer on this host is about to say whether it has the memory of a
  // local link. The thread waits for that for a moment, since the helper would have to wake it up again.
  Outcome StepInCall(Time now);
  [[nodiscard]] Background::Wait wait() const;
  // Returns the address that the kernel gave with the connection; empty over a kernel RNIC.
  [[nodiscard]] const Address& peer() const { return peer_; }
  // The descriptor has a new number.
  void SetFd(int fd);
  std::unique_ptr<Session> TakeSession() { return std::move(session_); }
  // In the child of a fork: a device's side of the connection is the parent's, and stays.
  void Disown();

 private:
  // Says no to the peer's request.
  Outcome Reject(const std::string& why, Time now);
  Outcome Fail(const std::string& why);

  int fd_;
  Address peer_;
  uint16_t service_ = 0;
  ConnectionTuning tuning_;
  RnicKind rnic_ = RnicKind::kEmbedded;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<verbs::Connector> connector_;
  std::unique_ptr<Session> session_;
  bool accepted_ = false;
  bool send_first_ = false;
  std::vector<std::byte> reply_;  // HelloAck, if it travels in the MPA Reply
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ACCEPT_HANDSHAKE_H_
