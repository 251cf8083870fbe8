#ifndef SDP_CORE_ENGINE_SUSPENSION_H_
#define SDP_CORE_ENGINE_SUSPENSION_H_

#include <cstdint>
#include <optional>

#include "core/base/types.h"
#include "core/engine/options.h"
#include "core/engine/status.h"

namespace sdp::engine {

// How a session leaves its LLP connection to go on over another one: Socket Duplication and Managed Failover
// (SDP 13), as the Local Peer, who asks, and as the Remote Peer, who answers and connects anew.
class Suspension {
 public:
  // --- Local Peer
  // A SuspComm with `port` is wanted: now, or once a suspension that the peer asked for is over (13.1.2).
  void Ask(uint16_t port);
  [[nodiscard]] bool asked() const { return wish_.has_value(); }
  [[nodiscard]] bool ask_due() const { return phase_ == Phase::kAsking; }
  // SuspComm leaves: the port it carries.
  uint16_t AskTaken();
  AbortReason HandleSuspCommAck();

  // --- Remote Peer
  // `role`: ours in the connection that is, which decides whose SuspComm holds if they cross (13.1.2).
  AbortReason HandleSuspComm(uint16_t port, Role role);
  // Nothing but the answer may leave: our own SuspComm has (13.1.2).
  [[nodiscard]] bool only_answer() const { return crossed_; }
  [[nodiscard]] bool answer_due() const { return phase_ == Phase::kAnswering; }
  void AnswerTaken(WorkId id);
  void HandleSendCompleted(WorkId id);
  // Where to connect to, once our SuspCommAck is complete (13.1.1, 4).
  [[nodiscard]] std::optional<uint16_t> port() const {
    return phase_ == Phase::kRemoteDone ? std::optional(port_) : std::nullopt;
  }

  // --- both
  // Nothing new is begun: data, advertisements and RDMA wait for the next connection.
  [[nodiscard]] bool under_way() const { return phase_ != Phase::kNone; }
  // No SDP Message leaves any more, and no RDMA operation (13.1.1, 2 and 3).
  [[nodiscard]] bool silent() const { return phase_ >= Phase::kAwaiting && phase_ != Phase::kAnswering; }
  // The peer has said that it sends nothing more.
  [[nodiscard]] bool peer_silent() const { return phase_ >= Phase::kAnswering; }
  // `suspend`: it is the SuspCommAck that may follow a SuspComm which we disregarded.
  [[nodiscard]] bool may_receive(bool is_ack) const { return !peer_silent() && (!disregarded_ || is_ack); }
  [[nodiscard]] bool complete() const { return phase_ >= Phase::kLocalDone; }
  [[nodiscard]] bool at_rest() const { return phase_ != Phase::kAnswered; }
  // complete(): our role in the connection that follows.
  [[nodiscard]] Role next_role() const {
    return phase_ == Phase::kLocalDone ? Role::kAccepting : Role::kConnecting;
  }
  // That connection's set-up begins. What we asked for meanwhile is asked for there.
  void Resume();
  // The session has left a connection before.
  [[nodiscard]] bool resumed() const { return resumed_; }

 private:
  friend struct Frozen;

  enum class Phase : uint8_t {
    kNone,
    kAsking,     // our SuspComm is due
    kAwaiting,   // it has left
    kAnswering,  // the peer's is here, our SuspCommAck is due
    kAnswered,   // it has left and is not complete
    kLocalDone,  // the peer's SuspCommAck is here
    kRemoteDone,
  };

  Phase phase_ = Phase::kNone;
  bool disregarded_ = false;  // a SuspComm that crossed ours
  bool crossed_ = false;      // the same, and we have to answer it
  bool resumed_ = false;
  std::optional<uint16_t> wish_;  // what we ask for, until it is answered
  uint16_t port_ = 0;             // what the peer asked for
  uint32_t answer_ = 0;           // the low half of its WorkId: few are outstanding at a time
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_SUSPENSION_H_
