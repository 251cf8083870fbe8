#include "preload/socket/pm_lookup.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>

#include "portmapper/engine/assoc_handle.h"
#include "preload/config.h"
#include "preload/critical.h"
#include "preload/fail.h"
#include "preload/hidden_fds.h"
#include "preload/lasting.h"
#include "preload/real_calls.h"
#include "preload/socket/address.h"
#include "preload/socket/option_log.h"

namespace sdp::preload {
namespace {

// How long a host has been silent in a row to connects that gave it less time than the configured one.
class HurriedSilence {
 public:
  // Returns true if the cache is to have what the client found.
  bool Counts(const pm::PmClient& client, Duration limit) {
    const bool silent = client.state() == pm::QueryState::kSilent;
    const pm::Endpoint asked = pm::HostOf(client.query().target);
    if (asked != host_ || !silent) lasted_ = Duration::zero();
    host_ = asked;
    if (silent) lasted_ += limit;
    return !silent || lasted_ >= config().pm_timeout;
  }

 private:
  pm::Endpoint host_;
  Duration lasted_{};
};

struct State {
  Mutex mutex;
  HurriedSilence hurried;
  pm::PmCache cache{{.host_negative = config().pm_negative, .server = config().pm_server}};
  pm::SilentPorts silent_ports;
  std::optional<pm::AssocHandleGenerator> handles;
};
State& state() { return Lasting<State>(); }

pm::AssocHandle NextHandle(State& s) {
  if (!s.handles) {
    pm::AssocHandleGenerator::Key key{};
    if (getrandom(key.data(), sizeof key, GRND_NONBLOCK) != sizeof key) {
      // Still unique, if easier to guess (SDP 7.5.1 asks for random as a SHOULD).
      key = {static_cast<uint64_t>(getpid()), reinterpret_cast<uint64_t>(&s)};
    }
    s.handles.emplace(key);
  }
  return s.handles->Next();
}

// Binds to the port now, even if the application has left the choice of it to connect.
int BindToPort(int fd, const Address& address) {
  const int later = IntOption(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT).value_or(0);
  const int now = 0;
  if (later == 0) return real.bind(fd, address.get(), address.length);
  real.setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &now, sizeof now);
  const int result = real.bind(fd, address.get(), address.length);
  const KeepErrno keep;
  real.setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later);
  return result;
}

// Binds the TCP socket to a port unless the application has: the query must name the port from which the
// connection will come.
std::optional<pm::Endpoint> BoundLocal(int tcp_fd, int domain, const Address& route_source) {
  Address local = LocalAddress(tcp_fd);
  if (local.length != 0 && Port(local) != 0) {
    const pm::Endpoint bound = ToEndpoint(local);
    pm::Endpoint source = ToEndpoint(route_source);
    source.port = bound.port;
    return bound.IsWildcard() ? source : bound;
  }
  pm::Endpoint source = ToEndpoint(route_source);
  if (local.length != 0 && !ToEndpoint(local).IsWildcard()) source = ToEndpoint(local);
  source.port = 0;
  const bool v6 = route_source.family() == AF_INET6;  // a link-local address is of no use without its scope
  const Address address = ToAddress(source, domain, v6 ? route_source.storage.sin6_scope_id : 0);
  if (BindToPort(tcp_fd, address) != 0) return std::nullopt;
  local = LocalAddress(tcp_fd);
  if (local.length == 0) return std::nullopt;
  return ToEndpoint(local);
}

}  // namespace

std::optional<pm::CachedAnswer> LookupCached(const pm::Endpoint& target, Time now) {
  std::lock_guard lock(state().mutex);
  return state().cache.Lookup(target, now);
}

void RememberReset(const pm::Endpoint& target, Time now) {
  std::lock_guard lock(state().mutex);
  state().cache.RecordReset(target, now);
}

void ForgetTarget(const pm::Endpoint& target) {
  std::lock_guard lock(state().mutex);
  state().cache.Forget(target);
}

std::optional<pm::Silence> LookupSilence(const pm::Endpoint& sdp_address, Time now) {
  std::lock_guard lock(state().mutex);
  return state().silent_ports.Lookup(sdp_address, now);
}

pm::Silence RememberSilence(const pm::Endpoint& sdp_address, Time now) {
  std::lock_guard lock(state().mutex);
  return state().silent_ports.RecordSilence(sdp_address, now);
}

void RememberAnswer(const pm::Endpoint& sdp_address) {
  std::lock_guard lock(state().mutex);
  state().silent_ports.RecordAnswer(sdp_address);
}

std::unique_ptr<PmLookup> PmLookup::Start(int tcp_fd, int domain, const pm::Endpoint& target,
                                          uint32_t scope_id, Duration limit, Time now) {
  const std::optional<pm::Endpoint> central = config().pm_server;
  pm::Endpoint port_mapper = central.value_or(target);
  if (!central) port_mapper.port = config().pm_port;
  const int family = port_mapper.version == pm::IpVersion::kV4 ? AF_INET : AF_INET6;
  std::unique_ptr<PmLookup> lookup(new PmLookup);
  lookup->fd_ = real.socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (lookup->fd_ >= 0) lookup->fd_ = HiddenFds::Hide(lookup->fd_);
  if (lookup->fd_ < 0) return nullptr;
  FollowRoute(tcp_fd, lookup->fd_);
  // Connected, so that an ICMP unreachable arrives as an error rather than as silence.
  const Address address = ToAddress(port_mapper, family, central ? 0 : scope_id);
  if (real.connect(lookup->fd_, address.get(), address.length) != 0) return nullptr;
  const int target_family = target.version == pm::IpVersion::kV4 ? AF_INET : AF_INET6;
  const Address source =
      central ? SourceTowards(tcp_fd, ToAddress(target, target_family, scope_id)) : LocalAddress(lookup->fd_);
  if (source.length == 0) return nullptr;
  auto local = BoundLocal(tcp_fd, domain, source);
  if (local) local->scope = 0;  // as it comes back in the answer
  if (!local || local->version != target.version)
    return nullptr;  // bound to an address of the other version: the kernel reports the right error

  pm::PmClientOptions options;
  options.overall_limit = limit;
  lookup->limit_ = limit;
  std::lock_guard lock(state().mutex);
  lookup->client_ = std::make_unique<pm::PmClient>(
      pm::PmQuery{.handle = NextHandle(state()), .local = *local, .target = target}, options, now);
  return lookup;
}

PmLookup::~PmLookup() { HiddenFds::Close(fd_); }

pm::QueryState PmLookup::Step(Time now) {
  for (bool more = true; more && client_->state() == pm::QueryState::kAsking;) {
    std::byte buffer[512];
    const ssize_t n = real.recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n >= 0) {
      client_->HandleDatagram({buffer, static_cast<size_t>(n)}, now);
    } else if (errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH) {
      client_->HandleUnreachable(now);
    } else {
      more = false;
    }
  }
  if (client_->NextTimeout() <= now) client_->HandleTimeout(now);
  while (const auto datagram = client_->PollTransmit()) {
    if (real.send(fd_, datagram->data(), datagram->size(), MSG_NOSIGNAL) < 0 &&
        (errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH)) {
      client_->HandleUnreachable(now);
    }
  }
  if (client_->state() != pm::QueryState::kAsking) {
    std::lock_guard lock(state().mutex);
    if (state().hurried.Counts(*client_, limit_)) state().cache.Record(*client_, now);
  }
  return client_->state();
}

void ForgetPmAfterFork() {
  State& s = state();
  new (&s.mutex) Mutex;  // another thread may have held it when this process was made
  s.handles.reset();
}

}  // namespace sdp::preload
