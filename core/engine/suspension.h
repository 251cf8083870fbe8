#ifndef SDP_CORE_ENGINE_SUSPENSION_H_
#define SDP_CORE_ENGINE_SUSPENSION_H_

#include <cstdint>
#include <optional>

#include "core/base/types.h"
#include "core/engine/options.h"
#include "core/engine/status.h"

namespace sdp::engine {

// How a session leaves its LLP connection to continue over another one: Socket Duplication and Managed
// Failover (SDP 13). Serves the Local Peer, which asks, and the Remote Peer, which answers and connects
// again.
class Suspension {
 public:
  // --- Local Peer
  // Asks for a SuspComm with `port`: now, or after a suspension that the peer asked for (13.1.2).
  void Ask(uint16_t port);
  [[nodiscard]] bool asked() const { return wish_.has_value(); }
  [[nodiscard]] bool ask_due() const { return phase_ == Phase::kAsking; }
  // Takes the SuspComm that leaves, and returns its port.
  uint16_t AskTaken();
  AbortReason HandleSuspCommAck();

  // --- Remote Peer
  // Handles a SuspComm. `role`: ours in the current connection, which decides between crossing SuspComms
  // (13.1.2).
  AbortReason HandleSuspComm(uint16_t port, Role role);
  // Returns true if only the answer may leave, because our own SuspComm has left (13.1.2).
  [[nodiscard]] bool only_answer() const { return crossed_; }
  [[nodiscard]] bool answer_due() const { return phase_ == Phase::kAnswering; }
  void AnswerTaken(WorkId id);
  void HandleSendCompleted(WorkId id);
  // Returns the port to connect to, once our SuspCommAck is complete (13.1.1, 4).
  [[nodiscard]] std::optional<uint16_t> port() const {
    return phase_ == Phase::kRemoteDone ? std::optional(port_) : std::nullopt;
  }

  // --- both
  // Returns true if nothing new may begin: data, advertisements and RDMA wait for the next connection.
  [[nodiscard]] bool under_way() const { return phase_ != Phase::kNone; }
  // Returns true if no SDP message and no RDMA operation may leave any more (13.1.1, 2 and 3).
  [[nodiscard]] bool silent() const { return phase_ >= Phase::kAwaiting && phase_ != Phase::kAnswering; }
  // Returns true if the peer has said that it sends nothing more.
  [[nodiscard]] bool peer_silent() const { return phase_ >= Phase::kAnswering; }
  // `is_ack`: the message is a SuspCommAck, which may follow a SuspComm that we disregarded.
  [[nodiscard]] bool may_receive(bool is_ack) const { return !peer_silent() && (!disregarded_ || is_ack); }
  [[nodiscard]] bool complete() const { return phase_ >= Phase::kLocalDone; }
  [[nodiscard]] bool at_rest() const { return phase_ != Phase::kAnswered; }
  // If complete(): returns our role in the next connection.
  [[nodiscard]] Role next_role() const {
    return phase_ == Phase::kLocalDone ? Role::kAccepting : Role::kConnecting;
  }
  // Begins that connection's set-up. A suspension asked for meanwhile is asked for there.
  void Resume();
  // Returns true if the session has left a connection before.
  [[nodiscard]] bool resumed() const { return resumed_; }

 private:
  friend struct Frozen;

  enum class Phase : uint8_t {
    kNone,
    kAsking,     // our SuspComm is due
    kAwaiting,   // our SuspComm has left
    kAnswering,  // the peer's SuspComm is here, our SuspCommAck is due
    kAnswered,   // our SuspCommAck has left and is not complete
    kLocalDone,  // the peer's SuspCommAck is here
    kRemoteDone,
  };

  Phase phase_ = Phase::kNone;
  bool disregarded_ = false;  // the peer's SuspComm crossed ours, and we ignore it
  bool crossed_ = false;      // the peer's SuspComm crossed ours, and we must answer it
  bool resumed_ = false;
  std::optional<uint16_t> wish_;  // the port we ask for, until the peer answers
  uint16_t port_ = 0;             // the port the peer asked for
  uint32_t answer_ = 0;           // the low half of our SuspCommAck's WorkId
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_SUSPENSION_H_
