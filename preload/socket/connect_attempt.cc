#include "preload/socket/connect_attempt.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "preload/config.h"
#include "preload/fail.h"
#include "preload/log.h"
#include "preload/native_family.h"
#include "preload/real_calls.h"
#include "preload/socket/asked_port.h"
#include "preload/socket/clock.h"
#include "preload/socket/options.h"
#include "preload/socket/sdp_port.h"
#include "preload/socket/shared_arena.h"
#include "preload/socket/tcp_answers.h"
#include "verbs/ibv/ibv_rnic.h"

namespace sdp::preload {
namespace {

using Outcome = ConnectAttempt::Outcome;
using stats::FallbackReason;

// How many handshakes the peer may end without a word. Children that end soon may each take one with them. A
// server that our handshake kills must not die much more often than on TCP.
constexpr int kMostLost = 4;

// So long an unanswered MPA Request counts as silence, if the program gives up. A firewall may answer for the
// SDP port, and let nothing through.
constexpr Duration kSilence = std::chrono::seconds(1);

// Between two looks for the port mapper's answer during a handshake.
constexpr Duration kBetweenLooks = std::chrono::milliseconds(5);

FallbackReason ReasonOf(pm::QueryState state) {
  switch (state) {
    case pm::QueryState::kSilent:
      return FallbackReason::kPmTimeout;
    case pm::QueryState::kUnreachable:
      return FallbackReason::kPmUnreachable;
    case pm::QueryState::kDenied:
      return FallbackReason::kPmDenied;
    case pm::QueryState::kAccepted:
    case pm::QueryState::kAsking:
      break;
  }
  return FallbackReason::kOther;
}

// Errors of connect() whose cause is neither the peer nor the path to it.
bool IsOfThisHost(int error) {
  switch (error) {
    case EACCES:
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
    case EPERM:
      return true;
    default:
      return false;
  }
}

// Returns true if the peer ended the link without a word. A Terminate is a word. So is an invalid answer,
// which the peer would only repeat. A failure of this host does not count either.
bool EndedByPeer(const verbs::LinkCause& cause) {
  return cause.end == verbs::LinkEnd::kClosedByPeer ||
         (cause.end == verbs::LinkEnd::kReset && !cause.local && cause.os_error != ETIMEDOUT);
}

}  // namespace

int ConnectWithoutBlocking(int fd, const Address& address) {
  const int flags = real.fcntl(fd, F_GETFL);
  const bool blocking = flags >= 0 && (flags & O_NONBLOCK) == 0;
  if (blocking) real.fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const int result = real.connect(fd, address.get(), address.length);
  const KeepErrno keep;
  if (blocking) real.fcntl(fd, F_SETFL, flags);
  return result;
}

void Unconnect(int fd) {
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  real.connect(fd, &nobody, sizeof nobody);
  const linger off{};
  real.setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
}

ConnectAttempt::ConnectAttempt(int fd, int domain, const Address& target, KeptOptions* kept)
    : fd_(fd),
      domain_(domain == kFamilySdp ? AF_INET : domain),
      target_(target),
      kept_(*kept),
      ruling_(domain == kFamilySdp ? Ruling::Native()
                                   : DecideSocket(RuleRole::kClient, target_.get(), target_.length)),
      target_endpoint_(ToEndpoint(target)) {
  if (target.family() == AF_INET6)
    scope_id_ = reinterpret_cast<const sockaddr_in6*>(&target.storage)->sin6_scope_id;
}

void ConnectAttempt::NoteGivenUp() const noexcept {
  if (connector_ == nullptr || kernel_rnic_) return;
  try {
    const Time now = Now();
    if (now - kSilence >= requested_) RememberSilence(ToEndpoint(sdp_address_), now);
  } catch (const std::bad_alloc&) {  // the next connect waits once more
  }
}

Outcome ConnectAttempt::Step(Time now) {
  switch (phase_) {
    case Phase::kStart:
      return Start(now);
    case Phase::kAsking: {
      const pm::QueryState state = lookup_->Step(now);
      if (state == pm::QueryState::kAsking) return Outcome::kPending;
      const pm::Endpoint sdp_address = lookup_->sdp_address();
      round_trip_ = lookup_->round_trip();
      lookup_.reset();
      return HandleAnswer(state, sdp_address, now);
    }
    case Phase::kLink:
      return StepLink(now);
    case Phase::kRace:
      return StepRace(now);
    case Phase::kHandshake:
      return StepHandshake(now);
    case Phase::kConventional: {
      const auto error = ConnectResult(fd_);
      return error ? FinishConventional(*error) : Outcome::kPending;
    }
  }
  return Outcome::kFailed;
}

Background::Wait ConnectAttempt::wait() const {
  switch (phase_) {
    case Phase::kStart:
      break;
    case Phase::kAsking:
      return {.fd = lookup_->fd(), .events = POLLIN, .deadline = lookup_->deadline()};
    case Phase::kLink:
      return {.fd = fd_, .events = POLLOUT, .deadline = std::min(deadline_, race_.deadline())};
    case Phase::kRace:
      return {.fd = fd_, .events = POLLOUT, .also_fd = probe_ == nullptr ? -1 : probe_->fd()};
    case Phase::kConventional:
      return {.fd = fd_, .events = POLLOUT, .deadline = kNever};
    case Phase::kHandshake: {
      const verbs::Interest interest =
          connector_ != nullptr ? connector_->interest() : session_->queue_pair().interest();
      return {.fd = connector_ != nullptr ? connector_->event_fd() : session_->LinkOf(fd_),
              .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
              .deadline = connector_ == nullptr ? deadline_
                          : lookup_ != nullptr  ? Now() + kBetweenLooks
                                                : std::min({connector_->deadline(), deadline_, doubt_at_})};
    }
  }
  return {.deadline = Time::min()};
}

void ConnectAttempt::SetFd(int fd) {
  fd_ = fd;
  if (connector_ != nullptr) connector_->SetEventFd(fd);
  if (session_ != nullptr) session_->queue_pair().SetEventFd(fd);
}

void ConnectAttempt::Disown() {
  requested_ = kNever;
  if (!kernel_rnic_) return;
  (void)connector_.release();
  (void)session_.release();
}

Outcome ConnectAttempt::Start(Time now) {
  if (ruling_.mode == Mode::kTcp) {
    return GiveUp(ruling_.rule == nullptr ? FallbackReason::kModeTcp : FallbackReason::kRule,
                  ruling_.ToString());
  }
  if (ruling_.mode == Mode::kBoth && !SharedArena::MayBeMade())
    return GiveUp(FallbackReason::kResources, SharedArena::kNoRoom);
  if (std::string why; !HaveRnic(&why)) return GiveUp(FallbackReason::kNoRnic, "SDP_RNIC=verbs: " + why);
  if (target_endpoint_.port == 0 || target_endpoint_.IsMulticastOrBroadcast()) {
    return GiveUp(FallbackReason::kAddressFamily, "no address for a stream: " + target_endpoint_.ToString());
  }
  if (target_endpoint_.IsWildcard()) {
    // To connect to the wildcard address is to connect to this host.
    target_endpoint_.address = {};
    if (target_endpoint_.version == pm::IpVersion::kV4) {
      target_endpoint_.address[0] = 127;
      target_endpoint_.address[3] = 1;
    } else {
      target_endpoint_.address[15] = 1;
    }
  }
  if (const auto cached = LookupCached(target_endpoint_, now)) {
    from_cache_ = true;
    round_trip_ = cached->round_trip;
    return HandleAnswer(cached->state, cached->sdp_address, now);
  }
  from_cache_ = false;
  lookup_ =
      PmLookup::Start(fd_, domain_, target_endpoint_, scope_id_, WithinPatience(config().pm_timeout), now);
  if (lookup_ == nullptr)
    return GiveUp(FallbackReason::kPmUnreachable, "no way to ask the target's port mapper");
  phase_ = Phase::kAsking;
  return Step(now);
}

Outcome ConnectAttempt::HandleAnswer(pm::QueryState state, const pm::Endpoint& sdp_address, Time now) {
  if (state != pm::QueryState::kAccepted) {
    const auto reason = from_cache_ ? FallbackReason::kPmCached : ReasonOf(state);
    return GiveUp(reason, "port mapper of " + target_endpoint_.ToString() + ": " +
                              std::string(pm::ToString(state)) + (from_cache_ ? " a moment ago" : ""));
  }
  if (sdp_address.IsWildcard() || sdp_address.port == 0 || sdp_address.IsMulticastOrBroadcast() ||
      (domain_ == AF_INET && sdp_address.version != pm::IpVersion::kV4)) {
    return GiveUp(FallbackReason::kPmUnusable, "the port mapper named an SDP address that cannot be used");
  }
  if (const char* why = Distrust(config(), target_endpoint_, sdp_address))
    return GiveUp(FallbackReason::kPmUntrusted, sdp_address.ToString() + ": " + why);
  sdp_address_ = ToAddress(sdp_address, domain_, scope_id_);
  if (may_forgo_sdp() && WasSilent(now)) return GiveUp(FallbackReason::kSdpSilent, reason_text_);
  return ConnectLink(now);
}

Outcome ConnectAttempt::ConnectLink(Time now) {
  deadline_ = now + WithinPatience(config().handshake_timeout);
  if (!std::exchange(kernel_rnic_tried_, true)) {
    const pm::Endpoint target = ToEndpoint(sdp_address_);
    const Address address =
        ToAddress(target, target.version == pm::IpVersion::kV4 ? AF_INET : AF_INET6, scope_id_);
    Address source;
    std::string why;
    if (LeadsThroughKernelRnic(fd_, address, &source, &why)) {
      const engine::Options options = EngineOptions(RnicKind::kKernel, kept_.tuning());
      engine_ = std::make_unique<engine::Engine>(engine::Role::kConnecting, options);
      connector_ = ibv::Connect(source.get(), address.get(), engine_->Hello(), QpOptions(options),
                                config().handshake_timeout, now);
      kernel_rnic_ = true;
      phase_ = Phase::kHandshake;
      return StepHandshake(now);
    }
    if (config().rnic == RnicChoice::kVerbs) return GiveUp(FallbackReason::kNoRnic, "SDP_RNIC=verbs: " + why);
  }
  phase_ = Phase::kLink;
  const bool loopback = ToEndpoint(sdp_address_).IsLoopback();
  if (loopback) kept_.ForgoCongestionControl(fd_);
  const int one = 1;
  real.setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  StartRace(now);
  if (ConnectWithoutBlocking(fd_, sdp_address_) == 0) return HandleLink(0, now);
  if (errno != EINPROGRESS && errno != EALREADY) return HandleLink(errno, now);
  // On the loopback device, as a rule, the connection is there by now. A caller that cannot wait needs the
  // helper from here on. If there is none, the peer has not yet heard of the attempt.
  const bool goes_on = Background::Runs() || (real.fcntl(fd_, F_GETFL) & O_NONBLOCK) == 0;
  const auto error = loopback && goes_on ? ConnectResult(fd_) : std::nullopt;
  return error ? HandleLink(*error, now) : Outcome::kPending;
}

Outcome ConnectAttempt::HandleLink(int error, Time now) {
  if (error != 0) {
    Unconnect(fd_);
    if (from_cache_ && error == ECONNREFUSED) return AskAnew(now);
    // SDP 7.5.1: a reset counts as a PMDeny.
    if (!IsOfThisHost(error)) RememberReset(target_endpoint_, now);
    return GiveUp(error == ETIMEDOUT ? FallbackReason::kSdpSilent : FallbackReason::kSdpRefused,
                  ToEndpoint(sdp_address_).ToString() + ": " + strerrordesc_np(error));
  }
  RememberAnswer(ToEndpoint(sdp_address_));
  const engine::Options options = EngineOptions(RnicKind::kEmbedded, kept_.tuning());
  engine_ = std::make_unique<engine::Engine>(engine::Role::kConnecting, options);
  const auto hello = engine_->Hello();
  const auto request = WithAskedPort(hello, from_cache_ ? target_endpoint_.port : 0);
  connector_ = iwarp::Connect(fd_, request, QpOptions(options), SoftOptions(), now);
  doubt_at_ = from_cache_ ? now + kSilence : kNever;
  if (budget_ != Duration::max()) requested_ = now;
  phase_ = Phase::kHandshake;
  return StepHandshake(now);
}

Outcome ConnectAttempt::StepHandshake(Time now) {
  if (connector_ != nullptr) {
    const verbs::ConnectState connected = connector_->Step(now);
    const bool over =
        connected == verbs::ConnectState::kRejected || connected == verbs::ConnectState::kFailed;
    // No listener, another one than was meant, or a program that does not know MPA.
    const bool gone = over && (kernel_rnic_ ? connector_->cause().os_error == ECONNREFUSED
                                            : connected == verbs::ConnectState::kRejected ||
                                                  connector_->cause().end != verbs::LinkEnd::kFailed);
    const bool silent = !over && connected != verbs::ConnectState::kEstablished;
    if (from_cache_ && (gone || (silent && IsOutdated(now)))) return AskAnew(now);
    if (over && kernel_rnic_ && config().rnic == RnicChoice::kAuto) {
      SDP_LOG(kInfo, "connect to %s: the embedded RNIC, because the kernel's failed (%s)",
              target_endpoint_.ToString().c_str(), connector_->cause().text.c_str());
      kernel_rnic_ = false;
      connector_.reset();
      engine_.reset();
      return ConnectLink(now);
    }
    switch (connected) {
      case verbs::ConnectState::kInProgress:
      case verbs::ConnectState::kRequested:
        if (kernel_rnic_ || now < deadline_) return Outcome::kPending;
        RememberReset(target_endpoint_, now);
        RememberSilence(ToEndpoint(sdp_address_), now);
        return GiveUp(FallbackReason::kMpaFailed, "MPA start-up timed out");
      case verbs::ConnectState::kRejected:
        RememberReset(target_endpoint_, now);
        return GiveUp(FallbackReason::kMpaRejected, "the peer rejected the connection");
      case verbs::ConnectState::kFailed:
        was_reset_ = EndedByPeer(connector_->cause());
        if (was_reset_ && MayTryAgain()) return TryAgain(now);
        // A local failure may not affect another connection, and says nothing about the peer.
        if (connector_->cause().end != verbs::LinkEnd::kFailed) RememberReset(target_endpoint_, now);
        return GiveUp(FallbackReason::kMpaFailed, connector_->cause().text);
      case verbs::ConnectState::kEstablished:
        if (requested_ != kNever) RememberAnswer(ToEndpoint(sdp_address_));
        break;
    }
    const auto hello = engine_->Hello();
    session_ = std::make_unique<Session>(std::move(engine_), connector_->TakeQueuePair());
    session_->SetKin(connector_->is_open());
    // The peer may have a kernel RNIC, whose owner has to receive a message before it may send one
    // (QpOptions::accept_silence).
    const bool local = session_->queue_pair().direct() != nullptr;
    const bool speak_first = kernel_rnic_ || (config().mpa_peer_to_peer && !local && !session_->kin());
    const auto accepted = session_->HandleReply(hello, connector_->peer_private_data(), speak_first);
    if (!accepted) return GiveUp(FallbackReason::kHelloFailed, engine::ToString(accepted.error()));
    connector_.reset();
    session_->Pump();
  }
  if (session_->engine().state() == engine::State::kHelloSent) session_->ReadAvailable();
  const engine::State state = session_->engine().state();
  if (state == engine::State::kHelloSent) {
    if (!session_->link_ended() && now < deadline_) return Outcome::kPending;
    was_reset_ = session_->link_ended();
    return GiveUp(FallbackReason::kHelloFailed, "no HelloAck came");
  }
  if (state == engine::State::kAborted &&
      !PeerLeftInOrder(session_->engine(), session_->queue_pair().cause())) {
    was_reset_ = session_->link_ended();
    if (session_->engine().abort_reason() == engine::AbortReason::kLinkLost &&
        EndedByPeer(session_->queue_pair().cause())) {
      if (MayTryAgain()) return TryAgain(now);
      if (!kernel_rnic_) RememberReset(target_endpoint_, now);
    }
    return GiveUp(FallbackReason::kHelloFailed, engine::ToString(session_->engine().abort_reason()));
  }
  return Outcome::kSdp;
}

// The listener may be as it was, and slow: it would have accepted a connection that is given up.
bool ConnectAttempt::IsOutdated(Time now) {
  if (now >= doubt_at_ && lookup_ == nullptr) {
    doubt_at_ = kNever;
    lookup_ =
        PmLookup::Start(fd_, domain_, target_endpoint_, scope_id_, WithinPatience(config().pm_timeout), now);
  }
  if (lookup_ == nullptr) return false;
  const pm::QueryState state = lookup_->Step(now);
  if (state == pm::QueryState::kAsking) return false;
  const bool moved = state == pm::QueryState::kAccepted && lookup_->sdp_address() != ToEndpoint(sdp_address_);
  lookup_.reset();
  return moved || state == pm::QueryState::kDenied;
}

Outcome ConnectAttempt::AskAnew(Time now) {
  ForgetTarget(target_endpoint_);
  lookup_.reset();
  if (kernel_rnic_) {
    kernel_rnic_ = kernel_rnic_tried_ = false;
  } else {
    Unconnect(fd_);
  }
  requested_ = kNever;
  connector_.reset();
  engine_.reset();
  phase_ = Phase::kStart;
  return Step(now);
}

bool ConnectAttempt::MayTryAgain() { return !kernel_rnic_ && lost_++ < kMostLost; }

// One of the processes that share a listener ended in our handshake. Another may accept the next one.
Outcome ConnectAttempt::TryAgain(Time now) {
  SDP_LOG(kDebug, "connect to %s: again, because the peer ended the handshake",
          target_endpoint_.ToString().c_str());
  if (session_ != nullptr) session_->queue_pair().Abort();
  session_.reset();
  connector_.reset();
  engine_.reset();
  Unconnect(fd_);
  return ConnectLink(now);
}

Outcome ConnectAttempt::ForgoSdp(FallbackReason reason, const char* text) {
  lookup_.reset();
  probe_.reset();
  if (phase_ == Phase::kLink || phase_ == Phase::kRace) Unconnect(fd_);
  return GiveUp(reason, text);
}

Outcome ConnectAttempt::GiveUp(FallbackReason reason, std::string text) {
  reason_ = reason;
  reason_text_ = std::move(text);
  if (phase_ == Phase::kHandshake) {
    if (session_ != nullptr) session_->queue_pair().Abort();
    session_.reset();
    connector_.reset();
    Unconnect(fd_);
  }
  kept_.RestoreCongestionControl(fd_);
  if (ruling_.mode == Mode::kSdp) {
    error_ = ECONNREFUSED;
    SDP_LOG(kError, "connect to %s: no SDP (%s), and %s allows no TCP", target_endpoint_.ToString().c_str(),
            reason_text_.c_str(), ruling_.ToString().c_str());
    return Outcome::kFailed;
  }
  SDP_LOG(kInfo, "connect to %s: TCP, because %s (%s)", target_endpoint_.ToString().c_str(),
          stats::ToString(reason_), reason_text_.c_str());
  return Outcome::kConventional;
}

Outcome ConnectAttempt::ConnectConventionally() {
  phase_ = Phase::kConventional;
  if (ConnectWithoutBlocking(fd_, target_) == 0) return FinishConventional(0);
  return errno == EINPROGRESS ? Outcome::kPending : FinishConventional(errno);
}

Outcome ConnectAttempt::FinishConventional(int error) {
  if (error == 0) return Outcome::kPlain;
  error_ = error == ECONNREFUSED ? ECONNRESET : error;
  return Outcome::kFailed;
}

}  // namespace sdp::preload
