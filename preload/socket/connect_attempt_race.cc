// The connect to an SDP port that may be silent: its race with TCP (connection_race.h).
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "preload/config.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/connect_attempt.h"

namespace sdp::preload {
namespace {

using Outcome = ConnectAttempt::Outcome;
using stats::FallbackReason;

std::string Seconds(Duration duration) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(duration).count()) + " s";
}

std::string Milliseconds(Duration duration) {
  return std::to_string(std::chrono::ceil<std::chrono::milliseconds>(duration).count()) + " ms";
}

}  // namespace

std::optional<int> ConnectResult(int fd) {
  pollfd link{.fd = fd, .events = POLLOUT, .revents = 0};
  timespec zero{};
  if (real.ppoll(&link, 1, &zero, nullptr) <= 0) return std::nullopt;
  return IntOption(fd, SOL_SOCKET, SO_ERROR).value_or(0);
}

DeafMoment::DeafMoment(int fd) {
  if (fd < 0) return;
  socklen_t instructions = 0;
  const bool filtered =
      real.getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, nullptr, &instructions) == 0 && instructions != 0;
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{.len = 1, .filter = &drop};
  if (!filtered && real.setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0) fd_ = fd;
}

void DeafMoment::End() {
  const int fd = std::exchange(fd_, -1);
  const int none = 0;
  if (fd >= 0) real.setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
}

bool ConnectAttempt::WasSilent(Time now) {
  const pm::Endpoint sdp_address = ToEndpoint(sdp_address_);
  const auto silence = LookupSilence(sdp_address, now);
  if (!silence) return false;
  why_.text = sdp_address.ToString() + ": did not answer " + Seconds(now - silence->since) +
              " ago; SDP is tried again in " + Seconds(silence->until - now);
  return true;
}

// The program's own time-out leaves room for TCP.
Duration ConnectAttempt::WithinPatience(Duration limit) const {
  const Duration patience = kept_.send_timeout();
  return may_forgo_sdp() && patience > Duration::zero() ? std::min(limit, patience / 2) : limit;
}

// On loopback no filter is to be expected, and a full backlog is no reason to leave SDP.
void ConnectAttempt::StartRace(Time now) {
  const bool may_race = may_forgo_sdp() && !ToEndpoint(sdp_address_).IsLoopback();
  budget_ = may_race
                ? ConnectionRace::Budget(config().connect_budget, answer_.round_trip, kept_.send_timeout())
                : Duration::max();
  race_.Begin(now, budget_);
}

Outcome ConnectAttempt::StepLink(Time now) {
  const auto error = ConnectResult(fd_);
  if (error) return HandleLink(*error, now);
  if (now >= deadline_) return HandleLink(ETIMEDOUT, now);
  switch (race_.Look(/*sdp=*/false, /*conventional=*/false, now)) {
    case ConnectionRace::Way::kBoth:
      return BeginRace(now);
    case ConnectionRace::Way::kConventional:
      Unconnect(fd_);
      return GiveUp(FallbackReason::kSdpSilent,
                    ToEndpoint(sdp_address_).ToString() + ": answers now and then");
    case ConnectionRace::Way::kSdpAlone:
    case ConnectionRace::Way::kSdp:
      break;
  }
  return Outcome::kPending;
}

// The application's descriptor goes the conventional way, for it keeps its number and what is registered for
// it only if it is the connection that is used. So where the probe is first, the descriptor connects to the
// SDP port anew, a round trip more.
Outcome ConnectAttempt::BeginRace(Time now) {
  SDP_LOG(kDebug, "connect to %s: TCP too, because %s is silent", target_endpoint_.ToString().c_str(),
          ToEndpoint(sdp_address_).ToString().c_str());
  probe_ = PortProbe::Start(fd_, sdp_address_);
  Unconnect(fd_);
  kept_.RestoreCongestionControl(fd_);
  const int off = 0;
  real.setsockopt(fd_, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
  phase_ = Phase::kRace;
  if (ConnectWithoutBlocking(fd_, target_) != 0 && errno != EINPROGRESS) {
    why_.error = errno;
    why_.reason = FallbackReason::kSdpSilent;
    return Outcome::kFailed;
  }
  return StepRace(now);
}

Outcome ConnectAttempt::StepRace(Time now) {
  const auto probed = probe_ == nullptr ? std::nullopt : ConnectResult(probe_->fd());
  const bool sdp_answered = probed == 0;
  if (probed && !sdp_answered) probe_.reset();
  DeafMoment deaf(sdp_answered ? fd_ : -1);
  const auto error = ConnectResult(fd_);
  const ConnectionRace::Way way = race_.Look(sdp_answered, error.has_value(), now);
  if (way == ConnectionRace::Way::kBoth) return Outcome::kPending;
  if (way == ConnectionRace::Way::kSdp) Unconnect(fd_);
  deaf.End();
  const pm::Endpoint sdp_address = ToEndpoint(sdp_address_);
  const bool was_probed = std::exchange(probe_, nullptr) != nullptr;
  if (sdp_answered) RememberAnswer(sdp_address);
  if (way == ConnectionRace::Way::kSdp) return ConnectLink(now);
  const int one = 1;
  real.setsockopt(fd_, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
  why_.reason = FallbackReason::kSdpSilent;
  why_.text = sdp_address.ToString() + ": no answer within " + Milliseconds(budget_);
  if (sdp_answered) {
    why_.text += ", and then no sooner than TCP";
  } else if (was_probed && *error == 0) {  // else the host itself may be down
    why_.text += "; SDP is tried again in " + Seconds(RememberSilence(sdp_address, now).until - now);
  }
  LogGivenUp();
  if (*error == 0) return Outcome::kPlain;
  why_.error = *error;
  return Outcome::kFailed;
}

}  // namespace sdp::preload
