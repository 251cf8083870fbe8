#include "preload/socket/link_move.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "preload/config.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/connect_attempt.h"
#include "preload/socket/listener.h"
#include "preload/socket/options.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {
namespace {

// How long the peer has to end its side of the old link behind our end of it.
constexpr Duration kPatienceForEnd = std::chrono::seconds(2);
// How soon one looks again at what nobody tells.
constexpr Duration kLook = std::chrono::milliseconds(1);

int Option(int fd, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  real.getsockopt(fd, SOL_SOCKET, name, &value, &length);
  return value;
}

void SetOption(int fd, int name, int value) { real.setsockopt(fd, SOL_SOCKET, name, &value, sizeof value); }

}  // namespace

LinkMove::LinkMove(int fd, uint16_t port, Duration rest, Time now)
    : source_(LocalAddress(fd)),
      port_(port),
      same_names_(Port(PeerAddress(fd)) == port),
      reuse_address_(Option(fd, SO_REUSEADDR)),
      rest_(rest),
      deadline_(now + kPatienceForEnd),
      gives_up_(now + config().handshake_timeout) {
  // What is left of the old link takes it over, and is not in the way of the bind then.
  SetOption(fd, SO_REUSEADDR, 1);
}

bool LinkMove::MayLeave(int fd, size_t queued, Time now) {
  NoteDelivered(fd, queued, now);
  return delivered_ && (same_names_ || late(now));
}

// To dissolve a link destroys what its peer's kernel has not acknowledged, and the SuspCommAck is the last of it. Our FIN counts as a byte:
// it is there unless the link is going to be reset.
void LinkMove::NoteDelivered(int fd, size_t queued, Time now) {
  int unacknowledged = 0;
  if (real.ioctl(fd, SIOCOUTQ, &unacknowledged) != 0) unacknowledged = 0;
  const size_t undelivered = queued + static_cast<size_t>(unacknowledged);
  if (undelivered < least_undelivered_) {
    least_undelivered_ = undelivered;
    gives_up_ = now + config().handshake_timeout;
  }
  delivered_ = undelivered <= (same_names_ ? 0 : 1);
}

void LinkMove::NoteLeft(Time now) {
  phase_ = Phase::kLeft;
  rest_ends_ = now + rest_;
  deadline_ = rest_ends_ + config().handshake_timeout;
}

// Beside what is left of the old link, and an accepted one beside its listener. A socket that the application has bound to a port still has
// it, and is not bound again (EINVAL); of others getsockname tells the old port, and it is not theirs.
void LinkMove::BindToSource(int fd) {
  const int reuse_port = Option(fd, SO_REUSEPORT);
  SetOption(fd, SO_REUSEPORT, 1);
  const int result = Listener::BindBeside(fd, source_);
  const int error = errno;
  SetOption(fd, SO_REUSEPORT, reuse_port);
  if (result == 0 || error == EINVAL) return;
  SDP_LOG(kInfo, "connection with %s goes on from another port than %u: %s", ToEndpoint(target_).ToString().c_str(), Port(source_),
          strerrordesc_np(error));
}

void LinkMove::Connect(int fd, const Address& peer, const std::array<std::byte, engine::kHelloSize>& hello, const verbs::QpOptions& qp,
                       Time now) {
  const int saved = errno;
  hello_ = hello;
  qp_ = qp;
  target_ = peer;
  SetPort(target_, port_);
  deadline_ = now + config().handshake_timeout;
  phase_ = Phase::kLink;
  Unconnect(fd);
  BindToSource(fd);
  SetOption(fd, SO_REUSEADDR, reuse_address_);
  if (ConnectWithoutBlocking(fd, target_) == 0) {
    HandleConnected(fd, 0, now);
  } else if (errno != EINPROGRESS && errno != EALREADY) {
    HandleConnected(fd, errno, now);
  }
  errno = saved;
}

void LinkMove::Step(int fd, Time now) {
  if (phase_ == Phase::kLink) {
    pollfd link{.fd = fd, .events = POLLOUT, .revents = 0};
    timespec zero{};
    if (real.ppoll(&link, 1, &zero, nullptr) != 0) {
      int error = 0;
      socklen_t length = sizeof error;
      real.getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
      HandleConnected(fd, error, now);
    }
  } else if (phase_ == Phase::kHandshake) {
    connector_->SetEventFd(fd);
    switch (connector_->Step(now)) {
      case verbs::ConnectState::kInProgress:
      case verbs::ConnectState::kRequested:
        break;
      case verbs::ConnectState::kRejected:
        return Fail(0, "the peer rejected the connection");
      case verbs::ConnectState::kFailed:
        return Fail(late(now) ? ETIMEDOUT : 0, connector_->cause().text);
      case verbs::ConnectState::kEstablished:
        phase_ = Phase::kThere;
        return;
    }
  }
  if ((phase_ == Phase::kLink || phase_ == Phase::kHandshake) && late(now)) Fail(ETIMEDOUT, strerrordesc_np(ETIMEDOUT));
}

void LinkMove::HandleConnected(int fd, int error, Time now) {
  if (error != 0) return Fail(error, strerrordesc_np(error));
  connector_ = iwarp::Connect(fd, hello_, qp_, SoftOptions(), now);
  phase_ = Phase::kHandshake;
  Step(fd, now);
}

void LinkMove::Fail(int os_error, const std::string& what) {
  cause_ = Cause(os_error, what);
  phase_ = Phase::kFailed;
}

// To the application the connection that it has is lost: it knows nothing of another one that was refused.
verbs::LinkCause LinkMove::Cause(int os_error, const std::string& what) const {
  return {.end = verbs::LinkEnd::kReset,
          .os_error = os_error == ETIMEDOUT ? ETIMEDOUT : 0,
          .text = "Socket Duplication, to " + ToEndpoint(target_).ToString() + ": " + what};
}

std::unique_ptr<verbs::QueuePair> LinkMove::Take() {
  phase_ = Phase::kNewLink;
  return connector_->TakeQueuePair();
}

short LinkMove::events() const {
  if (phase_ == Phase::kLink) return POLLOUT;
  if (phase_ != Phase::kHandshake) return 0;
  const verbs::Interest interest = connector_->interest();
  return static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0));
}

Time LinkMove::deadline(Time now) const {
  if (phase_ == Phase::kLeft && resting(now)) return rest_ends_;
  if (phase_ == Phase::kLeft || (phase_ == Phase::kLeaving && (same_names_ || late(now)))) return now + kLook;
  if (phase_ == Phase::kHandshake) return std::min(connector_->deadline(), deadline_);
  return deadline_;
}

}  // namespace sdp::preload
