// A connection's way from one link to the next, because its peer has asked for Socket Duplication
// (SDP 13.1.1, steps 3 and 4):
//
//   kLeaving ──the old link has ended──> kLeft ──Connect()──> kLink ──connected──> kHandshake ──MPA──> kThere
//                                                               └── refused, rejected, time-out ──> kFailed
//   kThere ──Take()──> kNewLink
//
// What others know stays: over the embedded RNIC the application's own descriptor is dissolved and connected
// again, with its number, its options, its epoll registrations and whoever else has the open file
// (link_move_tcp.cc); over a kernel RNIC the descriptor that is waited for stands for another queue pair
// (link_move_rdma.cc; kLink is part of the RNIC's kHandshake there). Passive: the owner calls Step() when
// what events() and deadline() name has come. Unlocked: the StreamSocket's lock guards it.
#ifndef SDP_PRELOAD_SOCKET_LINK_MOVE_H_
#define SDP_PRELOAD_SOCKET_LINK_MOVE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/engine/engine.h"
#include "preload/socket/address.h"
#include "verbs/rnic.h"

namespace sdp::preload {

class LinkMove {
 public:
  enum class Phase : uint8_t { kLeaving, kLeft, kLink, kHandshake, kThere, kFailed, kNewLink };
  using Hello = std::array<std::byte, engine::kHelloSize>;

  // Of `left`, the queue pair that is to be left. `port`: the one that the peer's SuspComm carries. `rest`:
  // how long to be without a link.
  static std::unique_ptr<LinkMove> Begin(const verbs::QueuePair& left, uint16_t port, Duration rest,
                                         Time now);
  virtual ~LinkMove() = default;
  LinkMove(const LinkMove&) = delete;
  LinkMove& operator=(const LinkMove&) = delete;

  [[nodiscard]] Phase phase() const { return phase_; }
  // The old queue pair's link is no more, and there is no other.
  [[nodiscard]] bool between_links() const { return phase_ != Phase::kLeaving && phase_ != Phase::kNewLink; }
  // kLeaving: the old link ends in good order; false: Connect() resets it, once the peer's kernel has all.
  [[nodiscard]] virtual bool ends_in_order() const { return true; }

  // kLeaving: true if NoteLeft() is due although the link is there, since the peer need not end its side, or
  // has had its time for it, and its kernel has all that was sent.
  [[nodiscard]] virtual bool MayLeave(const verbs::QueuePair& left, Time now) = 0;
  // It takes nothing of that, for SDP_HANDSHAKE_TIMEOUT_MS.
  [[nodiscard]] virtual bool stuck(Time /*now*/) const { return false; }
  void NoteLeft(Time now);
  // kLeft: Connect() is not due yet.
  [[nodiscard]] bool resting(Time now) const { return now < rest_ends_; }
  // kLeft: connects to that port of the old link's other end, and from the same address and port as before,
  // for the peer looks at that (step 1), where the kernel lets us. `peer`: that other end, where the queue
  // pair does not know it. `hello`, `qp`: of the set-up as connecting peer. In place of `left` there may be
  // another queue pair then.
  void Connect(std::unique_ptr<verbs::QueuePair>* left, const Address& peer, const Hello& hello,
               const verbs::QpOptions& qp, Time now);
  void Step(verbs::QueuePair& left, Time now);
  // between_links(), and there will be no other: nothing of it is to stay.
  virtual void Dissolve(const verbs::QueuePair& /*left*/) {}
  // kThere: the new queue pair. What is left to wait for is the HelloAck, if it was not in the peer's answer
  // to the Hello.
  [[nodiscard]] std::unique_ptr<verbs::QueuePair> Take();
  // kNewLink.
  [[nodiscard]] Bytes answer() const { return connector_->peer_private_data(); }
  [[nodiscard]] const Hello& hello() const { return hello_; }
  // The peer may have to hear a message before it may send one (Session::HandleReply).
  [[nodiscard]] virtual bool speaks_first() const = 0;
  // kFailed: why.
  [[nodiscard]] const verbs::LinkCause& cause() const { return cause_; }
  // Of a move that ends for another reason.
  [[nodiscard]] verbs::LinkCause Cause(int os_error, const std::string& what) const;

  // between_links(): what to poll the link for; 0: nothing.
  [[nodiscard]] short events() const;
  [[nodiscard]] Time deadline(Time now) const;
  [[nodiscard]] bool late(Time now) const { return now >= deadline_; }

 protected:
  LinkMove(uint16_t port, Duration rest, Time now);

  // kLink: begins, and goes on.
  virtual void BeginLink(std::unique_ptr<verbs::QueuePair>* left, Time now) = 0;
  virtual void StepLink(verbs::QueuePair& /*left*/, Time /*now*/) {}
  // The connector has failed: true if it is another one now.
  virtual bool TryOtherwise(verbs::QueuePair& /*left*/, Time /*now*/) { return false; }
  void BeginHandshake(verbs::QueuePair& left, std::unique_ptr<verbs::Connector> connector, Time now);
  void DropConnector() { connector_.reset(); }
  void NoteOtherPort(int error) const;
  void Fail(int os_error, const std::string& what);

  [[nodiscard]] const verbs::QpOptions& qp() const { return qp_; }
  [[nodiscard]] const verbs::Connector& connector() const { return *connector_; }

  Address source_;  // of the old link, and of the next
  Address target_;  // from Connect() on
  const uint16_t port_;

 private:
  void StepHandshake(verbs::QueuePair& left, Time now);

  const Duration rest_;
  Time rest_ends_{};
  Phase phase_ = Phase::kLeaving;
  Time deadline_;
  Hello hello_{};
  verbs::QpOptions qp_;
  std::unique_ptr<verbs::Connector> connector_;
  verbs::LinkCause cause_;
};

// What Begin() chooses from.
std::unique_ptr<LinkMove> MakeTcpLinkMove(int fd, uint16_t port, Duration rest, Time now);
std::unique_ptr<LinkMove> MakeRdmaLinkMove(const verbs::DeviceLink& left, uint16_t port, Duration rest,
                                           Time now);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LINK_MOVE_H_
