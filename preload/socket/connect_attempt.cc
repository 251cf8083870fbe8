#include "preload/socket/connect_attempt.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <new>
#include <utility>

#include "preload/config.h"
#include "preload/fail.h"
#include "preload/log.h"
#include "preload/native_family.h"
#include "preload/real_calls.h"
#include "preload/socket/asked_port.h"
#include "preload/socket/clock.h"
#include "preload/socket/link_names.h"
#include "preload/socket/options.h"
#include "preload/socket/sdp_port.h"
#include "preload/socket/shared_arena.h"
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
  if (target.family() == AF_INET6) scope_id_ = target.storage.sin6_scope_id;
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
      answer_.round_trip = lookup_->round_trip();
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
      return {.fd = connector_ != nullptr ? connector_->event_fd() : LinkOf(*session_, fd_),
              .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
              .deadline = connector_ == nullptr ? deadline_
                          : lookup_ != nullptr
                              ? Now() + kBetweenLooks
                              : std::min({connector_->deadline(), deadline_, answer_.doubt_at})};
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
  if (const auto cached = LookupCached(target_endpoint_, now)) {
    answer_.cached = true;
    answer_.round_trip = cached->round_trip;
    return HandleAnswer(cached->state, cached->sdp_address, now);
  }
  answer_.cached = false;
  lookup_ =
      PmLookup::Start(fd_, domain_, target_endpoint_, scope_id_, WithinPatience(config().pm_timeout), now);
  if (lookup_ == nullptr)
    return GiveUp(FallbackReason::kPmUnreachable, "no way to ask the target's port mapper");
  phase_ = Phase::kAsking;
  return Step(now);
}

Outcome ConnectAttempt::HandleAnswer(pm::QueryState state, const pm::Endpoint& sdp_address, Time now) {
  if (state != pm::QueryState::kAccepted) {
    const auto reason = answer_.cached ? FallbackReason::kPmCached : ReasonOf(state);
    return GiveUp(reason, "port mapper of " + target_endpoint_.ToString() + ": " +
                              std::string(pm::ToString(state)) + (answer_.cached ? " a moment ago" : ""));
  }
  if (sdp_address.IsWildcard() || sdp_address.port == 0 || sdp_address.IsMulticastOrBroadcast() ||
      (domain_ == AF_INET && sdp_address.version != pm::IpVersion::kV4)) {
    return GiveUp(FallbackReason::kPmUnusable, "the port mapper named an SDP address that cannot be used");
  }
  if (const char* why = Distrust(config(), target_endpoint_, sdp_address))
    return GiveUp(FallbackReason::kPmUntrusted, sdp_address.ToString() + ": " + why);
  sdp_address_ = ToAddress(sdp_address, domain_, scope_id_);
  if (may_forgo_sdp() && WasSilent(now)) return GiveUp(FallbackReason::kSdpSilent, why_.text);
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
    if (answer_.cached && error == ECONNREFUSED) return AskAnew(now);
    // SDP 7.5.1: a reset counts as a PMDeny.
    const bool own_timeout = error == ETIMEDOUT && hurried();
    if (!IsOfThisHost(error) && !own_timeout) RememberReset(target_endpoint_, now);
    return GiveUp(error == ETIMEDOUT ? FallbackReason::kSdpSilent : FallbackReason::kSdpRefused,
                  ToEndpoint(sdp_address_).ToString() + ": " + strerrordesc_np(error));
  }
  RememberAnswer(ToEndpoint(sdp_address_));
  const engine::Options options = EngineOptions(RnicKind::kEmbedded, kept_.tuning());
  engine_ = std::make_unique<engine::Engine>(engine::Role::kConnecting, options);
  const auto hello = engine_->Hello();
  const auto request = WithAskedPort(hello, answer_.cached ? target_endpoint_.port : 0);
  connector_ = iwarp::Connect(fd_, request, QpOptions(options), SoftOptions(), now);
  answer_.doubt_at = answer_.cached ? now + kSilence : kNever;
  if (budget_ != Duration::max()) requested_ = now;
  phase_ = Phase::kHandshake;
  return StepHandshake(now);
}

bool ConnectAttempt::MayTryAgain() { return !kernel_rnic_ && lost_++ < kMostLost; }

Outcome ConnectAttempt::ForgoSdp(FallbackReason reason, const char* text) {
  lookup_.reset();
  probe_.reset();
  if (phase_ == Phase::kLink || phase_ == Phase::kRace) Unconnect(fd_);
  std::string why;
  try {
    why = text;
  } catch (const std::bad_alloc&) {  // the reason has to do
  }
  return GiveUp(reason, std::move(why));
}

Outcome ConnectAttempt::GiveUp(FallbackReason reason, std::string text) {
  why_.reason = reason;
  why_.text = std::move(text);
  if (phase_ == Phase::kHandshake) {
    if (session_ != nullptr) session_->queue_pair().Abort();
    session_.reset();
    connector_.reset();
    Unconnect(fd_);
  }
  kept_.RestoreCongestionControl(fd_);
  const bool fails = ruling_.mode == Mode::kSdp;
  if (fails) why_.error = ECONNREFUSED;
  try {
    LogGivenUp();
  } catch (const std::bad_alloc&) {  // there are more important things than a line
  }
  return fails ? Outcome::kFailed : Outcome::kConventional;
}

void ConnectAttempt::LogGivenUp() const {
  if (ruling_.mode == Mode::kSdp) {
    SDP_LOG(kError, "connect to %s: no SDP (%s), and %s allows no TCP", target_endpoint_.ToString().c_str(),
            why_.text.c_str(), ruling_.ToString().c_str());
  } else {
    SDP_LOG(kInfo, "connect to %s: TCP, because %s (%s)", target_endpoint_.ToString().c_str(),
            stats::ToString(why_.reason), why_.text.c_str());
  }
}

Outcome ConnectAttempt::ConnectConventionally() {
  phase_ = Phase::kConventional;
  if (ConnectWithoutBlocking(fd_, target_) == 0) return FinishConventional(0);
  return errno == EINPROGRESS ? Outcome::kPending : FinishConventional(errno);
}

Outcome ConnectAttempt::FinishConventional(int error) {
  if (error == 0) return Outcome::kPlain;
  why_.error = error == ECONNREFUSED ? ECONNRESET : error;
  return Outcome::kFailed;
}

}  // namespace sdp::preload
