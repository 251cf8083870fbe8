// From one link of the embedded RNIC to the next: both are the TCP connection of the application's own
// descriptor.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "preload/config.h"
#include "preload/guard.h"
#include "preload/real_calls.h"
#include "preload/socket/connect_attempt.h"
#include "preload/socket/link_move.h"
#include "preload/socket/listener.h"
#include "preload/socket/options.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {
namespace {

int Option(int fd, int name) { return IntOption(fd, SOL_SOCKET, name).value_or(0); }

void SetOption(int fd, int name, int value) { real.setsockopt(fd, SOL_SOCKET, name, &value, sizeof value); }

class TcpLinkMove final : public LinkMove {
 public:
  TcpLinkMove(int fd, uint16_t port, Duration rest, Time now)
      : LinkMove(port, rest, now),
        same_names_(Port(PeerAddress(fd)) == port),
        reuse_address_(Option(fd, SO_REUSEADDR)),
        gives_up_(now + config().handshake_timeout) {
    source_ = LocalAddress(fd);
    // What is left of the old link inherits the option, and then does not obstruct the bind.
    SetOption(fd, SO_REUSEADDR, 1);
  }

  // If both ends keep their names, nothing of the old link may be left, not even TIME_WAIT.
  [[nodiscard]] bool ends_in_order() const override { return !same_names_; }
  [[nodiscard]] bool MayLeave(const verbs::QueuePair& left, Time now) override {
    NoteDelivered(left, now);
    return delivered_ && (same_names_ || late(now));
  }
  [[nodiscard]] bool stuck(Time now) const override {
    return phase() == Phase::kLeaving && !delivered_ && now >= gives_up_;
  }
  void Dissolve(const verbs::QueuePair& left) override { Unconnect(left.event_fd()); }
  [[nodiscard]] bool speaks_first() const override { return config().mpa_peer_to_peer; }

 private:
  void BeginLink(std::unique_ptr<verbs::QueuePair>* left, Time now) override;
  void StepLink(verbs::QueuePair& left, Time now) override;
  void NoteDelivered(const verbs::QueuePair& left, Time now);
  void BindToSource(int fd);
  void HandleConnected(verbs::QueuePair& left, int error, Time now);

  const bool same_names_;
  const int reuse_address_;  // the application's SO_REUSEADDR
  // kLeaving: the least that was still on its way, and when to give up if it does not become less.
  bool delivered_ = false;
  size_t least_undelivered_ = SIZE_MAX;
  Time gives_up_;
};

// To dissolve a link destroys what the peer's kernel has not acknowledged, and the SuspCommAck is the last of
// that. Our FIN counts as a byte; it is there unless the link will be reset.
void TcpLinkMove::NoteDelivered(const verbs::QueuePair& left, Time now) {
  int unacknowledged = 0;
  if (real.ioctl(left.event_fd(), SIOCOUTQ, &unacknowledged) != 0) unacknowledged = 0;
  const size_t undelivered = left.unsent_bytes() + static_cast<size_t>(unacknowledged);
  if (undelivered < least_undelivered_) {
    least_undelivered_ = undelivered;
    gives_up_ = now + config().handshake_timeout;
  }
  delivered_ = undelivered <= (same_names_ ? 0 : 1);
}

// Binds next to the rest of the old link, or an accepted one next to its listener. A socket that the
// application has bound to a port still has that port, and cannot be bound again (EINVAL). For others
// getsockname still returns the old port, although it is no longer theirs.
void TcpLinkMove::BindToSource(int fd) {
  const int reuse_port = Option(fd, SO_REUSEPORT);
  SetOption(fd, SO_REUSEPORT, 1);
  const int result = Listener::BindBeside(fd, source_);
  const int error = errno;
  SetOption(fd, SO_REUSEPORT, reuse_port);
  if (result != 0 && error != EINVAL) NoteOtherPort(error);
}

void TcpLinkMove::BeginLink(std::unique_ptr<verbs::QueuePair>* left, Time now) {
  const int fd = (*left)->event_fd();
  Unconnect(fd);
  BindToSource(fd);
  SetOption(fd, SO_REUSEADDR, reuse_address_);
  if (ConnectWithoutBlocking(fd, target_) == 0) {
    HandleConnected(**left, 0, now);
  } else if (errno != EINPROGRESS && errno != EALREADY) {
    HandleConnected(**left, errno, now);
  }
}

void TcpLinkMove::StepLink(verbs::QueuePair& left, Time now) {
  std::optional<int> error;
  {
    const NoCancellation no_cancellation;  // this runs inside any call that makes progress
    error = ConnectResult(left.event_fd());
  }
  if (error) HandleConnected(left, *error, now);
}

void TcpLinkMove::HandleConnected(verbs::QueuePair& left, int error, Time now) {
  if (error != 0) return Fail(error, strerrordesc_np(error));
  iwarp::SoftOptions options = SoftOptions();
  options.local_link = options.local_link_only = false;  // other processes do not have its memory
  options.why_not_local = "the connection has moved to another link";
  BeginHandshake(left, iwarp::Connect(left.event_fd(), hello(), qp(), options, now), now);
}

}  // namespace

std::unique_ptr<LinkMove> MakeTcpLinkMove(int fd, uint16_t port, Duration rest, Time now) {
  return std::make_unique<TcpLinkMove>(fd, port, rest, now);
}

}  // namespace sdp::preload
