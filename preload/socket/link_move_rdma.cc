// From one queue pair of a kernel RNIC to the next. The application's own descriptor, an unconnected socket,
// has no part in this. The RNIC's descriptor, which is waited for, stands for the next queue pair, too.
#include <cerrno>
#include <utility>

#include "preload/config.h"
#include "preload/socket/link_move.h"
#include "preload/socket/link_names.h"

namespace sdp::preload {
namespace {

class RdmaLinkMove final : public LinkMove {
 public:
  RdmaLinkMove(const verbs::DeviceLink& left, uint16_t port, Duration rest, Time now)
      : LinkMove(port, rest, now) {
    const LinkNames names = NamesOf(left);
    source_ = names.local;
    target_ = names.peer;
  }

  // The SuspCommAck is complete, so the device has sent all that was posted. The device ends both directions.
  [[nodiscard]] bool MayLeave(const verbs::QueuePair& /*left*/, Time now) override { return late(now); }
  [[nodiscard]] bool speaks_first() const override { return true; }

 private:
  void BeginLink(std::unique_ptr<verbs::QueuePair>* left, Time now) override {
    if (auto next = (*left)->device()->Leave())
      *left = std::move(next);  // the old one is destroyed: its port is free
    ConnectAgain(**left, now);
  }

  // The listener of an accepted connection has the old port. Or the peer named the port that it has, and the
  // kernel keeps the rest of the old link.
  bool TryOtherwise(verbs::QueuePair& left, Time now) override {
    const int error = connector().cause().os_error;
    if ((error != EADDRINUSE && error != EADDRNOTAVAIL) || Port(source_) == 0) return false;
    NoteOtherPort(error);
    SetPort(source_, 0);
    ConnectAgain(left, now);
    return true;
  }

  void ConnectAgain(verbs::QueuePair& left, Time now) {
    DropConnector();
    BeginHandshake(left,
                   left.device()->ConnectAgain(source_.get(), target_.get(), hello(), qp(),
                                               config().handshake_timeout, now),
                   now);
  }
};

}  // namespace

std::unique_ptr<LinkMove> MakeRdmaLinkMove(const verbs::DeviceLink& left, uint16_t port, Duration rest,
                                           Time now) {
  return std::make_unique<RdmaLinkMove>(left, port, rest, now);
}

}  // namespace sdp::preload
