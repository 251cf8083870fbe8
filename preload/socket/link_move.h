// A connection's way from one link to the next, on the application's own descriptor, because its peer has asked for Socket Duplication
// (SDP 13.1.1, steps 3 and 4):
//
//    kLeaving ──the old link has ended──> kLeft ──Connect()──> kLink ──connected──> kHandshake ──MPA──> kThere ──Take()──> kNewLink
//                                                                └── refused, rejected, time-out ──> kFailed
//
// The descriptor is dissolved and connected again, so that its number, its options, its epoll registrations and who else has the open file
// stay. Passive: the owner calls Step() when what events() and deadline() name has come. Unlocked: the StreamSocket's lock guards it.
#ifndef SDP_PRELOAD_SOCKET_LINK_MOVE_H_
#define SDP_PRELOAD_SOCKET_LINK_MOVE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/engine/engine.h"
#include "preload/socket/address.h"
#include "verbs/rnic.h"

namespace sdp::preload {

class LinkMove {
 public:
  enum class Phase : uint8_t { kLeaving, kLeft, kLink, kHandshake, kThere, kFailed, kNewLink };

  // `fd`: of the link that is left. `port`: the one that the peer's SuspComm carries. `rest`: how long to be without a link.
  LinkMove(int fd, uint16_t port, Duration rest, Time now);

  [[nodiscard]] Phase phase() const { return phase_; }
  // The old queue pair's link is no more, and there is no other.
  [[nodiscard]] bool between_links() const { return phase_ != Phase::kLeaving && phase_ != Phase::kNewLink; }
  // The next link has both ends' names of the old one. Nothing of that may be left then, no TIME_WAIT either: it is reset, not closed,
  // once the peer's kernel has all.
  [[nodiscard]] bool same_names() const { return same_names_; }

  // kLeaving, `queued` bytes not given to the kernel yet: true if NoteLeft() is due although the link is there, since the peer need not end
  // its side, or has had its time for it, and its kernel has all that was sent.
  [[nodiscard]] bool MayLeave(int fd, size_t queued, Time now);
  // It takes nothing of that, for SDP_HANDSHAKE_TIMEOUT_MS.
  [[nodiscard]] bool stuck(Time now) const { return phase_ == Phase::kLeaving && !delivered_ && now >= gives_up_; }
  void NoteLeft(Time now);
  // kLeft: Connect() is not due yet.
  [[nodiscard]] bool resting(Time now) const { return now < rest_ends_; }
  // kLeft: connects to that port of `peer`, the old link's other end, and from the same address and port as before, for the peer looks at
  // that (step 1), where the kernel lets us. `hello`, `qp`: of the set-up as connecting peer.
  void Connect(int fd, const Address& peer, const std::array<std::byte, engine::kHelloSize>& hello, const verbs::QpOptions& qp, Time now);
  void Step(int fd, Time now);
  // kThere: the new queue pair. What is left to wait for is the HelloAck, if it was not in the peer's answer to the Hello.
  [[nodiscard]] std::unique_ptr<verbs::QueuePair> Take();
  // kNewLink.
  [[nodiscard]] Bytes answer() const { return connector_->peer_private_data(); }
  [[nodiscard]] const std::array<std::byte, engine::kHelloSize>& hello() const { return hello_; }
  // kFailed: why.
  [[nodiscard]] const verbs::LinkCause& cause() const { return cause_; }
  // Of a move that ends for another reason.
  [[nodiscard]] verbs::LinkCause Cause(int os_error, const std::string& what) const;

  // between_links(): what to poll the descriptor for; 0: nothing.
  [[nodiscard]] short events() const;
  [[nodiscard]] Time deadline(Time now) const;
  [[nodiscard]] bool late(Time now) const { return now >= deadline_; }

 private:
  void NoteDelivered(int fd, size_t queued, Time now);
  void BindToSource(int fd);
  void HandleConnected(int fd, int error, Time now);
  void Fail(int os_error, const std::string& what);

  Address source_;
  Address target_;  // from Connect() on
  const uint16_t port_;
  const bool same_names_;
  const int reuse_address_;  // the application's SO_REUSEADDR
  const Duration rest_;
  Time rest_ends_{};
  Phase phase_ = Phase::kLeaving;
  Time deadline_;
  // kLeaving: what was on its way when it last became less, and when to give up then.
  bool delivered_ = false;
  size_t least_undelivered_ = SIZE_MAX;
  Time gives_up_;
  std::array<std::byte, engine::kHelloSize> hello_{};
  verbs::QpOptions qp_;
  std::unique_ptr<verbs::Connector> connector_;
  verbs::LinkCause cause_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LINK_MOVE_H_
