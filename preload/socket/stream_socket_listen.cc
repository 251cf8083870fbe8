// Bind, Listen and Accept of a StreamSocket.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include "preload/config.h"
#include "preload/confinement.h"
#include "preload/fail.h"
#include "preload/log.h"
#include "preload/native_family.h"
#include "preload/real_calls.h"
#include "preload/signal_end.h"
#include "preload/socket/clock.h"
#include "preload/socket/co_holders.h"
#include "preload/socket/link_names.h"
#include "preload/socket/restart.h"
#include "preload/socket/server.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/unbounded_poll.h"
#include "preload/unwind.h"

namespace sdp::preload {
namespace {

constexpr Duration kStartPatience = std::chrono::milliseconds(20);
// So many that have come by SDP are accepted before one that has come by TCP.
constexpr uint32_t kMostInARow = 16;

// `fd` listens no more; the listener, where another process has it, goes on.
void PutUnboundInPlace(int fd, int domain) {
  const int fresh = real.socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fresh < 0) return;
  (void)PutInPlace(fresh, fd);
  real.close(fresh);
}

// A caller that sleeps in accept anyway sleeps until the peer may be sent to (RFC 5044, 7.1.2), which is its
// next message's time: what it sends then leaves at once, even if it ends right behind that.
void FinishStart(Session& session, int fd) {
  const Time deadline = Now() + kStartPatience;
  while (session.has_unsent() && !session.link_ended()) {
    pollfd link{.fd = LinkOf(session, fd), .events = POLLIN, .revents = 0};
    timespec storage;
    if (UnboundedPoll(&link, 1, Remaining(deadline, &storage), nullptr) <= 0) return;
    session.Read();
  }
}

}  // namespace

int StreamSocket::Bind(int fd, const sockaddr* address, socklen_t length) {
  if (!family_.native) return real.bind(fd, address, length);
  const PlainAddress plain(address, length);
  return real.bind(fd, plain.get(), plain.length());
}

int StreamSocket::Listen(int fd, int backlog) {
  Lock lock(mutex_);
  numbers_.AddUnlessKnown(fd);
  if (state_ == State::kSdp || state_ == State::kConnecting) return Fail(EINVAL);
  if (state_ == State::kNew && Confined() && !family_.native)
    BecomePlain(fd, stats::FallbackReason::kCount, {});
  if (state_ == State::kPlain || (state_ == State::kListening && Server(*this).WasShutDown()))
    return kPassThrough;
  const int result = real.listen(fd, backlog);
  if (result != 0) return result;
  if (state_ == State::kListening) {
    listening_.listener->SetBacklog(backlog);
    report_.PublishBacklog(fd);
    return 0;
  }
  const int saved = errno;
  names_.local = LocalAddress(fd);
  // Asked now: accept makes the file non-blocking, and other processes that share it must not take that for
  // the application's wish.
  numbers_.IsNonblocking(fd);
  RefreshConfig();
  const Ruling ruling = family_.native
                            ? Ruling::Native()
                            : DecideSocket(RuleRole::kServer, names_.local.get(), names_.local.length);
  listening_.plain_clients_allowed = ruling.mode != Mode::kSdp;
  Listener::Refusal refusal;
  if (ruling.mode == Mode::kBoth && !SharedArena::MayBeMade()) {
    refusal = {.reason = stats::FallbackReason::kResources, .text = SharedArena::kNoRoom};
  } else if (ruling.mode == Mode::kBoth && !listening_.for_others && IsCommon(fd)) {
    refusal = {.reason = stats::FallbackReason::kSocketOption, .text = kCommon};
  }
  if (!refusal.text.empty()) {
    SDP_LOG(kInfo, "listen on %s: %s; conventional clients only", ToEndpoint(names_.local).ToString().c_str(),
            refusal.text.c_str());
  } else if (ruling.mode != Mode::kTcp) {
    const bool may_wait = listening_.plain_clients_allowed || listening_.for_others;
    listening_.listener = Listener::Open(this, fd, family_.domain, backlog, options_.log,
                                         options_.kept.tuning(), may_wait, &refusal);
  }
  if (ruling.mode == Mode::kTcp) {
    SDP_LOG(kInfo, "listen on %s: TCP, because of %s", ToEndpoint(names_.local).ToString().c_str(),
            ruling.ToString().c_str());
    BecomePlain(fd, ruling.rule == nullptr ? stats::FallbackReason::kModeTcp : stats::FallbackReason::kRule,
                ruling.ToString());
  } else if (listening_.listener == nullptr) {
    if (!listening_.plain_clients_allowed) {
      SDP_LOG(kError, "listen on %s: no SDP, and %s allows no TCP",
              ToEndpoint(names_.local).ToString().c_str(), ruling.ToString().c_str());
      RecordFallback(fd, refusal.reason, refusal.text, {}, stats::State::kFailed);
      if (listening_.for_others) {
        PutUnboundInPlace(fd, family_.domain);
      } else {
        real.shutdown(fd, SHUT_RD);  // it listens no more
      }
      return Fail(EADDRNOTAVAIL);
    }
    BecomePlain(fd, refusal.reason, refusal.text);
  } else {
    if (listening_.listener->dormant()) {
      RecordFallback(fd, refusal.reason, refusal.text, {});
      if (!listening_.plain_clients_allowed) {
        SDP_LOG(kError, "listen on %s: no SDP yet, and %s allows no TCP: clients are turned away",
                ToEndpoint(names_.local).ToString().c_str(), ruling.ToString().c_str());
      }
    }
    options_.kept.Apply(fd);
    Server(*this).EnterListening(fd);
    board_.TellChange();
  }
  errno = saved;
  return 0;
}

void StreamSocket::Server::EnterListening(int fd) {
  s_.state_ = State::kListening;
  PrepareToThrow();
  if (s_.board_.has_owner()) s_.listening_.listener->SetSignals(fd);
  s_.report_.OpenListener(Statistics(), fd, s_.names_.local, s_.listening_.listener->sdp_address(),
                          s_.listening_.listener->standing());
}

void StreamSocket::PublishStanding() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kListening) report_.NoteStanding(listening_.listener->standing());
}

// In all processes that have it: they notice (WasShutDown), or the kernel tells them.
void StreamSocket::Server::StopListening(int fd) {
  s_.numbers_.EndForce(fd);
  s_.listening_.listener->ShutDown();
  s_.BecomePlain(fd, stats::FallbackReason::kCount, {});
}

bool StreamSocket::Server::WasShutDown() {
  if (s_.numbers_.none() || !s_.listening_.listener->IsShut()) return false;
  StopListening(s_.numbers_.any());
  return true;
}

int StreamSocket::Accept(int fd, sockaddr* address, socklen_t* length, int flags, SocketRef* connection) {
  const SignalEnd::NoReturn on_end;  // nor are there new clients
  Lock lock(mutex_);
  if (state_ != State::kListening) return kPassThrough;
  const Time deadline =
      options_.kept.receive_timeout() == Duration::zero() ? kNever : Now() + options_.kept.receive_timeout();
  const bool nonblocking = numbers_.IsNonblocking(fd);
  // Both listeners are waited for together, so that neither may block this thread for itself.
  if (!nonblocking && !numbers_.forced()) numbers_.ForceNonblocking(fd);
  listening_.listener->NoteUse();
  // Who came by TCP is not left waiting for as long as others come by SDP.
  bool plain_first = listening_.accepted_in_a_row >= kMostInARow;
  for (;;) {
    int accepted = -1;
    Address peer;
    if (auto session = plain_first ? nullptr : listening_.listener->Accept(flags, &accepted, &peer)) {
      Listener::Taken taken(accepted);
      ++listening_.accepted_in_a_row;
      if (!nonblocking) FinishStart(*session, accepted);
      const LinkNames names = NamesOf(*session);
      const bool of_rnic = names.local.length != 0;
      if (of_rnic) peer = ToAddress(ToEndpoint(names.peer), family_.domain, 0);
      Address local =
          of_rnic ? ToAddress(ToEndpoint(names.local), family_.domain, 0) : LocalAddress(accepted);
      SetPort(local, Port(names_.local));
      SDP_LOG(kInfo, "accept on %s: SDP from %s", ToEndpoint(local).ToString().c_str(),
              ToEndpoint(peer).ToString().c_str());
      if (of_rnic) {
        listening_.listener->CountAccepted(*session);
      } else {
        report_.CountAcceptedSdp();
      }
      KeptOptions options = options_.kept;
      if (!of_rnic) options.InheritCongestionControl(fd);
      *connection = SocketRef(new StreamSocket(family_.asked(), accepted, std::move(session), local, peer,
                                               options, (flags & SOCK_NONBLOCK) != 0));
      taken.fd = -1;
      lock.unlock();
      CopyOut(peer, address, length);
      return accepted;
    }
    if (!plain_first && errno != EAGAIN && errno != EINVAL && errno != ECONNABORTED) return -1;
    listening_.accepted_in_a_row = 0;
    accepted = real.accept4(fd, address, length, flags);
    if (accepted >= 0 && !listening_.plain_clients_allowed) {
      // "sdp" for a server: whoever comes by TCP is reset at once.
      SDP_LOG(kInfo, "a TCP client of %s is turned away: SDP alone is allowed there",
              ToEndpoint(names_.local).ToString().c_str());
      const linger reset{.l_onoff = 1, .l_linger = 0};
      real.setsockopt(accepted, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      real.close(accepted);
      listening_.listener->NoteUse();  // as often as the program would come back for the next one
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
    pollfd fds[4] = {{.fd = fd, .events = POLLIN, .revents = 0},
                     {.fd = listening_.listener->sdp_fd(), .events = POLLIN, .revents = 0},
                     {.fd = listening_.listener->ready_fd(), .events = POLLIN, .revents = 0},
                     {.fd = listening_.listener->common_fd(), .events = POLLIN, .revents = 0}};
    lock.unlock();
    const int result = deadline == kNever ? PollRestarting(fds, 4, kNever) : PollOnce(fds, 4, deadline);
    const int error = result < 0 ? errno : EAGAIN;
    lock.lock();
    if (state_ != State::kListening) return Fail(EINVAL);
    if (result <= 0) return Fail(error);
  }
}

}  // namespace sdp::preload
