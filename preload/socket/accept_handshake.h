// The accepting peer's side of one SDP connection's set-up, on a socket the SDP listener just returned.
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

  AcceptHandshake(int fd, const Address& peer, const ConnectionTuning& tuning, Time now);
  // The same for a request that a kernel RNIC has brought; `fd` is to become the application's descriptor for
  // the connection.
  AcceptHandshake(int fd, const ConnectionTuning& tuning, std::unique_ptr<verbs::Connector> connector)
      : fd_(fd), tuning_(tuning), rnic_(RnicKind::kKernel), connector_(std::move(connector)) {}

  // Never blocks. kFailed: the descriptor is the caller's to close; the log has the reason.
  Outcome Step(Time now);
  [[nodiscard]] Background::Wait wait() const;
  // As the kernel gave it with the connection; of a kernel RNIC's, empty.
  [[nodiscard]] const Address& peer() const { return peer_; }
  // The descriptor has another number now.
  void SetFd(int fd);
  std::unique_ptr<Session> TakeSession() { return std::move(session_); }
  // In the child of a fork: what a device knows of it is the parent's, and stays.
  void Disown();

 private:
  Outcome Fail(const std::string& why);

  int fd_;
  Address peer_;
  ConnectionTuning tuning_;
  RnicKind rnic_ = RnicKind::kEmbedded;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<verbs::Connector> connector_;
  std::unique_ptr<Session> session_;
  bool accepted_ = false;
  bool send_first_ = false;
  std::vector<std::byte> hello_ack_;  // if it travels in the reply
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ACCEPT_HANDSHAKE_H_
