// A connection's way from one link to the next, because its peer has asked for Socket Duplication (SDP
// 13.1.1, steps 3 and 4):
//
//   kLeaving ──the old link has ended──> kLeft ──Connect()──> kLink ──connected──> kHandshake ──MPA──> kThere
//                                                               └── refused, rejected, time-out ──> kFailed
//   kThere ──Take()──> kNewLink
//
// Over the embedded RNIC, the application's own descriptor is disconnected and connected again
// (link_move_tcp.cc). It keeps its number, its options, its epoll registrations and its other holders. Over a
// kernel RNIC, the descriptor that is waited for comes to stand for another queue pair (link_move_rdma.cc).
// There kLink is part of the RNIC's kHandshake. Passive: the owner calls Step() when what events() and
// deadline() name has come. Unlocked: the StreamSocket's lock guards it.
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

  // `left`: the queue pair to leave. `port`: from the peer's SuspComm. `rest`: how long to be without a link.
  static std::unique_ptr<LinkMove> Begin(const verbs::QueuePair& left, uint16_t port, Duration rest,
                                         Time now);
  virtual ~LinkMove() = default;
  LinkMove(const LinkMove&) = delete;
  LinkMove& operator=(const LinkMove&) = delete;

  [[nodiscard]] Phase phase() const { return phase_; }
  // Returns true if the old link is gone and there is no new one yet.
  [[nodiscard]] bool between_links() const { return phase_ != Phase::kLeaving && phase_ != Phase::kNewLink; }
  // kLeaving: returns true if the old link ends in good order. If not, Connect() resets it, once the peer's
  // kernel has all.
  [[nodiscard]] virtual bool ends_in_order() const { return true; }

  // kLeaving: returns true if NoteLeft() is due although the old link has not ended. The peer's kernel has
  // all that was sent, and the peer need not end its side, or has had its time for that.
  [[nodiscard]] virtual bool MayLeave(const verbs::QueuePair& left, Time now) = 0;
  // kLeaving: returns true if the peer's kernel has taken nothing more for SDP_HANDSHAKE_TIMEOUT_MS.
  [[nodiscard]] virtual bool stuck(Time /*now*/) const { return false; }
  void NoteLeft(Time now);
  // kLeft: returns true if Connect() is not due yet.
  [[nodiscard]] bool resting(Time now) const { return now < rest_ends_; }
  // kLeft: connects to that port of the old link's other end. The source address and port stay the same where
  // the kernel allows, since the peer checks them (step 1). `peer`: the other end, where the queue pair does
  // not know it. `hello`, `qp`: for the set-up as connecting peer. *left may be another queue pair
  // afterwards.
  void Connect(std::unique_ptr<verbs::QueuePair>* left, const Address& peer, const Hello& hello,
               const verbs::QpOptions& qp, Time now);
  void Step(verbs::QueuePair& left, Time now);
  // between_links() holds, and no other link will come: removes what is left of the move.
  virtual void Dissolve(const verbs::QueuePair& /*left*/) {}
  // kThere: returns the new queue pair. After this only the HelloAck may be missing, if it was not in the
  // peer's answer to the Hello.
  [[nodiscard]] std::unique_ptr<verbs::QueuePair> Take();
  // kNewLink: return the private data of that answer, and the Hello.
  [[nodiscard]] Bytes answer() const { return connector_->peer_private_data(); }
  [[nodiscard]] const Hello& hello() const { return hello_; }
  // Returns true if the peer may have to receive a message before it may send one (Session::HandleReply).
  [[nodiscard]] virtual bool speaks_first() const = 0;
  // kFailed: returns why.
  [[nodiscard]] const verbs::LinkCause& cause() const { return cause_; }
  // Returns the cause of a move that ends for another reason.
  [[nodiscard]] verbs::LinkCause Cause(int os_error, const std::string& what) const;

  // between_links(): returns what to poll the link for; 0: nothing.
  [[nodiscard]] short events() const;
  [[nodiscard]] Time deadline(Time now) const;
  [[nodiscard]] bool late(Time now) const { return now >= deadline_; }

 protected:
  LinkMove(uint16_t port, Duration rest, Time now);

  // kLink: the first step, and each further one.
  virtual void BeginLink(std::unique_ptr<verbs::QueuePair>* left, Time now) = 0;
  virtual void StepLink(verbs::QueuePair& /*left*/, Time /*now*/) {}
  // The connector has failed. Returns true if another one has taken its place.
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

// The kinds of move that Begin() chooses from.
std::unique_ptr<LinkMove> MakeTcpLinkMove(int fd, uint16_t port, Duration rest, Time now);
std::unique_ptr<LinkMove> MakeRdmaLinkMove(const verbs::DeviceLink& left, uint16_t port, Duration rest,
                                           Time now);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LINK_MOVE_H_
