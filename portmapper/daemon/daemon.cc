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
#include "portmapper/daemon/counters.h"
#include "portmapper/daemon/log.h"
#include "portmapper/daemon/registry_file.h"

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
  server_options.ack_timeout = options.ack_timeout;
  if (getrandom(server_options.hash_key.data(), sizeof server_options.hash_key, 0) < 0) {
    return absl::ErrnoToStatus(errno, "getrandom");
  }
  std::unique_ptr<Daemon> daemon(new Daemon(options, server_options));
  daemon->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!daemon->epoll_) return absl::ErrnoToStatus(errno, "epoll");

  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals, signal);
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) return absl::ErrnoToStatus(errno, "sigprocmask");
  daemon->signals_.Reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!daemon->signals_) return absl::ErrnoToStatus(errno, "signalfd");

  absl::Status status = daemon->ports_.Open(options.listen);
  if (status.ok()) status = daemon->LoadConfiguration();
  if (!status.ok()) return status;
  LocalServerOptions local_options;
  local_options.path = options.socket_path;
  local_options.mode = options.socket_mode;
  if (options.user) local_options.directory_owner = *options.user;
  FitToDescriptorLimit(&local_options);
  auto local = LocalServer::Open(local_options, &daemon->service_.server());
  if (!local.ok()) return local.status();
  daemon->local_ = *std::move(local);
  daemon->service_.SetLocal(daemon->local_.get());
  if (!options.metrics.empty()) {
    auto metrics = MetricsServer::Open(options.metrics);
    if (!metrics.ok()) return metrics.status();
    daemon->metrics_ = *std::move(metrics);
    status.Update(daemon->Watch(daemon->metrics_->poll_fd()));
  }
  for (const AnnouncerOptions& announcer : options.announcers) {
    daemon->announcers_.push_back(std::make_unique<Announcer>(announcer));
  }

  status.Update(daemon->ports_.WatchAll([&](int fd) { return daemon->Watch(fd); }));
  status.Update(daemon->Watch(daemon->local_->poll_fd()));
  status.Update(daemon->Watch(daemon->signals_.get()));
  if (status.ok()) status = daemon->Confine();
  if (!status.ok()) return status;
  return daemon;
}

absl::Status Daemon::Confine() {
  if (options_.user) {
    absl::Status status = ports_.GiveTo(options_.user->uid);
    if (status.ok()) status = BecomeUser(*options_.user);
    if (!status.ok()) return status;
  }
  if (!options_.restrict_system_calls) return absl::OkStatus();
  absl::Status status = RestrictSystemCalls();
  if (!absl::IsUnavailable(status)) return status;
  Log(LogLevel::kInfo, "%s", status.message());
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
  return absl::StrCat(ports_.Describe(), ", ", options_.socket_path, metrics_ ? ", metrics " : "",
                      metrics_ ? metrics_->where() : "");
}

absl::Status Daemon::Run() {
  manager_.Ready(Describe());
  std::array<epoll_event, 16> events;
  while (!stop_) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), events.size(), MillisecondsToNextTimeout(Now()));
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
    const Time now = Now();
    for (int i = 0; i < count; ++i) HandleReadable(events[i].data.fd, now);
    HandleTimeout(now);
  }
  manager_.Stopping();
  Log(LogLevel::kInfo, "stopped");
  return absl::OkStatus();
}

void Daemon::HandleReadable(int fd, Time now) {
  if (fd == local_->poll_fd()) return local_->HandleReadable(now);
  if (fd == signals_.get()) return HandleSignal(now);
  if (metrics_ && fd == metrics_->poll_fd()) {
    return metrics_->HandleReadable([&] { return ToOpenMetrics(AllCounters(service_, *local_, ports_)); },
                                    now);
  }
  const auto serve = [&](Bytes datagram, const Endpoint& source) {
    return service_.Serve(datagram, source, now);
  };
  if (ports_.HandleReadable(fd, serve, [this](int added) { return Watch(added); })) return;
  for (const auto& announcer : announcers_) {
    if (announcer->fd() == fd) return announcer->HandleReadable(now);
  }
}

// All or nothing: a registry with a mistake leaves what was there before.
absl::Status Daemon::LoadConfiguration() {
  auto registry = LoadRegistry(options_.registry, options_.serve);
  if (!registry.ok()) return registry.status();
  service_.directory().Configure(*std::move(registry));
  const auto heard = service_.directory().IsCentral() ? Announcements::kHeard : Announcements::kDropped;
  return ports_.SetFilter(heard);
}

void Daemon::HandleSignal(Time now) {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGUSR1) {
      Dump();
    } else if (info.ssi_signo == SIGHUP) {
      Reload(now);
    } else {
      stop_ = true;
    }
  }
}

void Daemon::Reload(Time now) {
  manager_.Reloading(now);
  const absl::Status status = LoadConfiguration();
  if (status.ok()) {
    Log(LogLevel::kInfo, "registry %s read again: %d services", options_.registry,
        service_.directory().registry().services.size());
  } else {
    LogLines(LogLevel::kError, std::string(status.message()));
    Log(LogLevel::kError, "the registry stays as it was");
  }
  manager_.Ready(Describe());
}

void Daemon::HandleTimeout(Time now) {
  manager_.HandleTimeout(now);
  if (metrics_) metrics_->HandleTimeout(now);
  service_.HandleTimeout(now);
  local_->HandleTimeout(now);
  HandleAnnouncers(now);
}

void Daemon::HandleAnnouncers(Time now) {
  if (announcers_.empty()) return;
  const RegistrationTable& registrations = service_.server().registrations();
  if (registrations.generation() != announced_generation_) {
    announced_generation_ = registrations.generation();
    for (const auto& announcer : announcers_) announcer->HandleChange(now);
  }
  const bool due = std::any_of(announcers_.begin(), announcers_.end(),
                               [&](const auto& announcer) { return announcer->NextTimeout() <= now; });
  if (!due) return;
  // Nobody asks us about them, so nobody else notices that a listener has gone.
  for (const auto& [id, registration] : registrations.List()) (void)local_->VerifyAlive(id, now);
  const auto alive = registrations.List();
  for (const auto& announcer : announcers_) {
    announcer->HandleTimeout(alive, now);
    if (announcer->fd() >= 0) (void)Watch(announcer->fd());  // a new socket; a known one is there already
  }
}

int Daemon::MillisecondsToNextTimeout(Time now) const {
  const Time next = [&] {
    Time earliest = std::min({service_.NextTimeout(), local_->NextTimeout(), manager_.NextTimeout()});
    if (metrics_) earliest = std::min(earliest, metrics_->NextTimeout());
    for (const auto& announcer : announcers_) earliest = std::min(earliest, announcer->NextTimeout());
    return earliest;
  }();
  if (next == kNever) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
  return static_cast<int>(std::clamp<decltype(wait)>(wait, 0, INT_MAX));
}

void Daemon::Dump() const {
  const RegistrationTable& registrations = service_.server().registrations();
  Log(LogLevel::kInfo, "%d registrations", registrations.size());
  for (const auto& [id, registration] : registrations.List()) {
    Log(LogLevel::kInfo, "  %s -> %s (%s)", registration.conventional.ToString(), registration.sdp.ToString(),
        local_->OwnerOf(id));
  }
  for (const std::string& line : ToLogLines(AllCounters(service_, *local_, ports_))) {
    Log(LogLevel::kInfo, "%s", line);
  }
}

}  // namespace sdp::pm
