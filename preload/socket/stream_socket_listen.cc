// Bind, Listen and Accept of a StreamSocket.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>

#include "preload/config.h"
#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/log.h"
#include "preload/native_family.h"
#include "preload/real_calls.h"
#include "preload/signal_end.h"
#include "preload/socket/clock.h"
#include "preload/socket/co_holders.h"
#include "preload/socket/restart.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

constexpr Duration kStartPatience = std::chrono::milliseconds(20);
// So many that have come by SDP are accepted before one that has come by TCP.
constexpr uint32_t kMostInARow = 16;

// `fd` listens no more; the listener, where another process has it, goes on.
void PutUnboundInPlace(int fd, int domain) {
  const int fresh = real.socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fresh < 0) return;
  real.fcntl(fresh, F_SETFL, real.fcntl(fd, F_GETFL));
  real.dup3(fresh, fd, (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
  real.close(fresh);
}

}  // namespace

int StreamSocket::Bind(int fd, const sockaddr* address, socklen_t length) {
  if (!native_) return real.bind(fd, address, length);
  const PlainAddress plain(address, length);
  return real.bind(fd, plain.get(), plain.length());
}

int StreamSocket::Listen(int fd, int backlog) {
  Lock lock(mutex_);
  if (std::find(descriptors_.begin(), descriptors_.end(), fd) == descriptors_.end())
    descriptors_.push_back(fd);
  if (state_ == State::kSdp || state_ == State::kConnecting) return Fail(EINVAL);
  if (state_ == State::kNew && Confined() && !native_) BecomePlain(fd, stats::FallbackReason::kCount, {});
  if (state_ == State::kPlain || (state_ == State::kListening && WasShutDown())) return kPassThrough;
  const int result = real.listen(fd, backlog);
  if (result != 0) return result;
  if (state_ == State::kListening) {
    listener_->SetBacklog(backlog);
    report_.PublishBacklog(fd);
    return 0;
  }
  const int saved = errno;
  local_ = LocalAddress(fd);
  // Asked now: accept makes the file non-blocking, and other processes that share it must not take that for
  // the application's wish.
  IsNonblocking(fd);
  RefreshConfig();
  const Ruling ruling =
      native_ ? Ruling::Native() : DecideSocket(RuleRole::kServer, local_.get(), local_.length);
  plain_clients_allowed_ = ruling.mode != Mode::kSdp;
  Listener::Refusal refusal;
  if (ruling.mode == Mode::kBoth && !SharedArena::MayBeMade()) {
    refusal = {.reason = stats::FallbackReason::kResources, .text = SharedArena::kNoRoom};
    SDP_LOG(kInfo, "listen on %s: %s; conventional clients only", ToEndpoint(local_).ToString().c_str(),
            refusal.text.c_str());
  } else if (ruling.mode == Mode::kBoth && !listens_for_others_ && IsCommon(fd)) {
    refusal = {.reason = stats::FallbackReason::kSocketOption, .text = kCommon};
    SDP_LOG(kInfo, "listen on %s: %s; conventional clients only", ToEndpoint(local_).ToString().c_str(),
            kCommon);
  } else if (ruling.mode != Mode::kTcp) {
    const bool may_wait = plain_clients_allowed_ || listens_for_others_;
    listener_ =
        Listener::Open(this, fd, domain_, backlog, options_set_, options_.tuning(), may_wait, &refusal);
  }
  if (ruling.mode == Mode::kTcp) {
    SDP_LOG(kInfo, "listen on %s: TCP, because of %s", ToEndpoint(local_).ToString().c_str(),
            ruling.ToString().c_str());
    BecomePlain(fd, ruling.rule == nullptr ? stats::FallbackReason::kModeTcp : stats::FallbackReason::kRule,
                ruling.ToString());
  } else if (listener_ == nullptr) {
    if (!plain_clients_allowed_) {
      SDP_LOG(kError, "listen on %s: no SDP, and %s allows no TCP", ToEndpoint(local_).ToString().c_str(),
              ruling.ToString().c_str());
      RecordFallback(fd, refusal.reason, refusal.text, {}, stats::State::kFailed);
      if (listens_for_others_) {
        PutUnboundInPlace(fd, domain_);
      } else {
        real.shutdown(fd, SHUT_RD);  // it listens no more
      }
      return Fail(EADDRNOTAVAIL);
    }
    BecomePlain(fd, refusal.reason, refusal.text);
  } else {
    if (listener_->dormant()) {
      RecordFallback(fd, refusal.reason, refusal.text, {});
      if (!plain_clients_allowed_) {
        SDP_LOG(kError, "listen on %s: no SDP yet, and %s allows no TCP: clients are turned away",
                ToEndpoint(local_).ToString().c_str(), ruling.ToString().c_str());
      }
    }
    options_.Apply(fd);
    EnterListening(fd);
    board_.TellChange();
  }
  errno = saved;
  return 0;
}

void StreamSocket::EnterListening(int fd) {
  state_ = State::kListening;
  NoteFirst();
  if (board_.has_owner()) listener_->SetSignals(fd);
  report_.OpenListener(Statistics(), fd, local_, listener_->sdp_address(), listener_->standing());
}

void StreamSocket::PublishStanding() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kListening) report_.NoteStanding(listener_->standing());
}

// In all processes that have it: they notice (WasShutDown), or the kernel tells them.
void StreamSocket::StopListening(int fd) {
  if (listener_forced_nonblocking_ && !nonblocking_.value_or(false))
    real.fcntl(fd, F_SETFL, real.fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  listener_->ShutDown();
  BecomePlain(fd, stats::FallbackReason::kCount, {});
}

bool StreamSocket::WasShutDown() {
  if (descriptors_.empty() || !listener_->IsShut()) return false;
  StopListening(descriptors_.front());
  return true;
}

// A caller that sleeps in accept anyway sleeps until the peer may be sent to (RFC 5044, 7.1.2), which is its
// next message's time: what it sends then leaves at once, even if it ends right behind that.
void StreamSocket::FinishStart(Session& session, int fd) {
  const Time deadline = Now() + kStartPatience;
  while (session.has_unsent() && !session.link_ended()) {
    pollfd link{.fd = session.LinkOf(fd), .events = POLLIN, .revents = 0};
    timespec storage;
    if (UnboundedPoll(&link, 1, Remaining(deadline, &storage), nullptr) <= 0) return;
    session.ReadAvailable();
  }
}

int StreamSocket::Accept(int fd, sockaddr* address, socklen_t* length, int flags, SocketRef* connection) {
  const SignalEnd::NoReturn on_end;  // nor are there new clients
  Lock lock(mutex_);
  if (state_ != State::kListening) return kPassThrough;
  const Time deadline =
      options_.receive_timeout() == Duration::zero() ? kNever : Now() + options_.receive_timeout();
  const bool nonblocking = IsNonblocking(fd);
  if (!nonblocking && !listener_forced_nonblocking_) {
    // Both listeners are waited for together, so that neither may block this thread for itself.
    real.fcntl(fd, F_SETFL, real.fcntl(fd, F_GETFL) | O_NONBLOCK);
    listener_forced_nonblocking_ = true;
  }
  listener_->NoteUse();
  // Who came by TCP is not left waiting for as long as others come by SDP.
  bool plain_first = accepted_in_a_row_ >= kMostInARow;
  for (;;) {
    int accepted = -1;
    Address peer;
    if (auto session = plain_first ? nullptr : listener_->Accept(flags, &accepted, &peer)) {
      Listener::Taken taken(accepted);
      ++accepted_in_a_row_;
      if (!nonblocking) FinishStart(*session, accepted);
      const bool of_rnic = session->queue_pair().device() != nullptr;  // then the descriptor knows no names
      if (of_rnic) peer = ToAddress(ToEndpoint(session->PeerName()), domain_, 0);
      Address local =
          of_rnic ? ToAddress(ToEndpoint(session->LocalName()), domain_, 0) : LocalAddress(accepted);
      SetPort(local, Port(local_));
      SDP_LOG(kInfo, "accept on %s: SDP from %s", ToEndpoint(local).ToString().c_str(),
              ToEndpoint(peer).ToString().c_str());
      if (of_rnic) {
        listener_->CountAccepted(*session);
      } else {
        report_.CountAcceptedSdp();
      }
      KeptOptions options = options_;
      if (!of_rnic) options.InheritCongestionControl(fd);
      *connection = SocketRef(new StreamSocket(native_ ? kFamilySdp : domain_, accepted, std::move(session),
                                               local, peer, options, (flags & SOCK_NONBLOCK) != 0));
      taken.fd = -1;
      lock.unlock();
      CopyOut(peer, address, length);
      return accepted;
    }
    if (!plain_first && errno != EAGAIN && errno != EINVAL && errno != ECONNABORTED) return -1;
    accepted_in_a_row_ = 0;
    accepted = real.accept4(fd, address, length, flags);
    if (accepted >= 0 && !plain_clients_allowed_) {
      // "sdp" for a server: whoever comes by TCP is reset at once.
      SDP_LOG(kInfo, "a TCP client of %s is turned away: SDP alone is allowed there",
              ToEndpoint(local_).ToString().c_str());
      const linger reset{.l_onoff = 1, .l_linger = 0};
      real.setsockopt(accepted, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      real.close(accepted);
      listener_->NoteUse();  // as often as the program would come back for the next one
      plain_first = false;
      continue;
    }
    if (accepted >= 0) {
      report_.CountAcceptedTcp();
      if (stats::StatsSegment* segment = Statistics())
        segment->CountFallback(stats::FallbackReason::kPlainClient);
      return accepted;
    }
    if (plain_first && errno == EAGAIN) {
      plain_first = false;
      continue;
    }
    if (errno != EAGAIN || nonblocking) return -1;
    pollfd fds[5] = {{.fd = fd, .events = POLLIN, .revents = 0},
                     {.fd = listener_->sdp_fd(), .events = POLLIN, .revents = 0},
                     {.fd = listener_->ready_fd(), .events = POLLIN, .revents = 0},
                     {.fd = listener_->common_fd(), .events = POLLIN, .revents = 0}};
    lock.unlock();
    const int result = deadline == kNever ? PollRestarting(fds, 4, kNever) : PollOnce(fds, 4, deadline);
    const int error = result < 0 ? errno : EAGAIN;
    lock.lock();
    if (state_ != State::kListening) return Fail(EINVAL);
    if (result <= 0) return Fail(error);
  }
}

}  // namespace sdp::preload
