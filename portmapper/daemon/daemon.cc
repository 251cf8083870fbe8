#include "portmapper/daemon/daemon.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sdp::pm {
namespace {

constexpr rlim_t kDescriptorsForOurselves = 300;  // among them one message's worth of a stranger's

Time Now() { return Time(std::chrono::steady_clock::now().time_since_epoch()); }

// A connection a listener: many listeners need many descriptors, and no user may use up what there is.
void FitToDescriptorLimit(LocalServerOptions* options) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, options->max_clients + kDescriptorsForOurselves);
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t usable = limit.rlim_cur > 2 * kDescriptorsForOurselves
                            ? limit.rlim_cur - kDescriptorsForOurselves
                            : std::max<rlim_t>(limit.rlim_cur / 2, 4);
  options->max_clients = std::min<size_t>(options->max_clients, usable);
  options->max_clients_per_user =
      std::min(options->max_clients_per_user, std::max<size_t>(options->max_clients / 4, 1));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Open(const DaemonOptions& options) {
  PmServerOptions server_options;
  server_options.pm_time = options.pm_time;
  if (getrandom(server_options.hash_key.data(), sizeof server_options.hash_key, 0) < 0) {
    return absl::ErrnoToStatus(errno, "getrandom");
  }
  std::unique_ptr<Daemon> daemon(new Daemon(server_options, options.admission));
  daemon->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!daemon->epoll_) return absl::ErrnoToStatus(errno, "epoll");

  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, signal);
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return absl::ErrnoToStatus(errno, "sigprocmask");
  daemon->signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!daemon->signals_) return absl::ErrnoToStatus(errno, "signalfd");

  absl::Status status = daemon->OpenPorts(options);
  if (!status.ok()) return status;
  LocalServerOptions local_options;
  local_options.path = options.socket_path;
  local_options.mode = options.socket_mode;
  FitToDescriptorLimit(&local_options);
  auto local = LocalServer::Open(local_options, &daemon->server_);
  if (!local.ok()) return local.status();
  daemon->local_ = *std::move(local);
  daemon->socket_path_ = options.socket_path;

  for (const UdpPort& port : daemon->ports_) status.Update(daemon->Watch(port.fd()));
  status.Update(daemon->Watch(daemon->local_->poll_fd()));
  status.Update(daemon->Watch(daemon->signals_.get()));
  if (!status.ok()) return status;
  return daemon;
}

absl::Status Daemon::OpenPorts(const DaemonOptions& options) {
  const bool everywhere = options.listen.empty();
  const std::vector<Endpoint> addresses =
      everywhere ? std::vector<Endpoint>{{IpVersion::kV4, {}, kPmUdpPort}, {IpVersion::kV6, {}, kPmUdpPort}}
                 : options.listen;
  for (const Endpoint& address : addresses) {
    absl::StatusOr<UdpPort> port = UdpPort::Open(address);
    if (port.ok()) {
      ports_.push_back(*std::move(port));
    } else if (everywhere && address.version == IpVersion::kV6 && absl::IsUnavailable(port.status())) {
      Log(LogLevel::kInfo, "no IPv6 on this host");
    } else {
      return port.status();
    }
  }
  return absl::OkStatus();
}

absl::Status Daemon::Watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll");
}

std::string Daemon::Describe() const {
  const std::string addresses = absl::StrJoin(ports_, " ", [](std::string* out, const UdpPort& port) {
    absl::StrAppend(out, port.local().ToString());
  });
  return absl::StrCat(addresses, ", ", socket_path_);
}

absl::Status Daemon::Run() {
  std::array<epoll_event, 16> events;
  while (!stop_) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), events.size(), MillisecondsToNextTimeout(Now()));
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
    const Time now = Now();
    for (int i = 0; i < count; ++i) HandleReadable(events[i].data.fd, now);
    HandleTimeout(now);
  }
  Log(LogLevel::kInfo, "stopped");
  return absl::OkStatus();
}

void Daemon::HandleReadable(int fd, Time now) {
  if (fd == local_->poll_fd()) return local_->HandleReadable(now);
  if (fd == signals_.get()) return HandleSignal();
  for (UdpPort& port : ports_) {
    if (port.fd() != fd) continue;
    return port.HandleReadable(
        [&](Bytes datagram, const Endpoint& source) { return Serve(datagram, source, now); });
  }
}

std::optional<Datagram> Daemon::Serve(Bytes datagram, const Endpoint& source, Time now) {
  if (admission_.Judge(source, now) != Verdict::kHear) return std::nullopt;
  const auto message = Parse(datagram);
  std::optional<Datagram> reply;
  if (!message) {
    server_.HandleMalformed();
  } else if (message->type == MessageType::kReq) {
    reply = server_.HandleRequest(*message, AnswerTo(*message, now), now);
  } else {
    server_.HandleOther(*message);
  }
  if (LogEnabled(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "%s: %s%s%s", source.ToString(),
        message ? ToString(*message) : std::string(ToString(message.error())), reply ? " answered " : "",
        reply ? ToString(*Parse(*reply)) : std::string());
  }
  return reply;
}

std::optional<PmAnswer> Daemon::AnswerTo(const PmMessage& request, Time now) {
  // A registration whose listener has gone must not answer for whoever has the port now. Each round removes
  // one.
  while (const auto local = server_.FindLocal(request)) {
    if (local_->VerifyAlive(local->registration, now)) return PmAnswer{local->sdp, server_.pm_time()};
  }
  return std::nullopt;
}

void Daemon::HandleSignal() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGUSR1) {
      Dump();
    } else {
      stop_ = true;
    }
  }
}

void Daemon::HandleTimeout(Time now) {
  server_.HandleTimeout(now);
  local_->HandleTimeout(now);
  MaybeWarnOfFlood(now);
}

// SDP 15.2.1: raise an alarm when requests come faster than is plausible.
void Daemon::MaybeWarnOfFlood(Time now) {
  const uint64_t evicted = server_.counters().evicted;
  uint64_t suppressed = 0;
  if (evicted != evicted_reported_ && eviction_limiter_.Allow(now, &suppressed)) {
    Log(LogLevel::kError,
        "requests come faster than their acknowledgements: %d waiting ones discarded since the last line",
        evicted - evicted_reported_);
    evicted_reported_ = evicted;
  }
  const AdmissionCounters& a = admission_.counters();
  const uint64_t unheard = a.privileged_port + a.source_limit + a.total_limit;
  if (unheard != unheard_reported_ && flood_limiter_.Allow(now, &suppressed)) {
    Log(LogLevel::kError,
        "datagrams not heard: %d since the last line; in all %d above the limit of their source, %d above "
        "the "
        "limit of all, %d from ports below 1024",
        unheard - unheard_reported_, a.source_limit, a.total_limit, a.privileged_port);
    unheard_reported_ = unheard;
  }
}

int Daemon::MillisecondsToNextTimeout(Time now) const {
  const Time next = std::min(server_.NextTimeout(), local_->NextTimeout());
  if (next == kNever) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::clamp<decltype(wait)>(wait, 0, INT_MAX));
}

void Daemon::Dump() const {
  const PmServerCounters& s = server_.counters();
  const LocalServerCounters& l = local_->counters();
  Log(LogLevel::kInfo, "%d registrations", server_.registrations().size());
  for (const auto& [id, registration] : server_.registrations().List()) {
    Log(LogLevel::kInfo, "  %s -> %s (%s)", registration.conventional.ToString(), registration.sdp.ToString(),
        local_->OwnerOf(id));
  }
  Log(LogLevel::kInfo,
      "requests %d duplicates %d superseded %d accepts %d denies %d acks %d unknown-acks %d timeouts %d "
      "evicted %d "
      "malformed %d misdirected %d waiting %d",
      s.requests, s.duplicates, s.superseded, s.accepts, s.denies, s.acks, s.unknown_acks, s.timeouts,
      s.evicted, s.malformed, s.misdirected, server_.waiting());
  uint64_t unsent = 0;
  uint64_t not_unicast = 0;
  uint64_t dropped = 0;
  for (const UdpPort& port : ports_) {
    unsent += port.unsent();
    not_unicast += port.not_unicast();
    dropped += port.dropped_by_kernel();
  }
  const AdmissionCounters& a = admission_.counters();
  Log(LogLevel::kInfo,
      "answers-unsent %d not-unicast %d dropped-by-kernel %d source-limit %d total-limit %d privileged-port "
      "%d",
      unsent, not_unicast, dropped, a.source_limit, a.total_limit, a.privileged_port);
  Log(LogLevel::kInfo, "local: clients %d connections %d registered %d refused %d dropped %d vanished %d",
      local_->clients(), l.connections, l.registered, l.refused, l.dropped, l.vanished);
}

}  // namespace sdp::pm
