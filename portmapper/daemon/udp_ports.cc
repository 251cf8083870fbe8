#include "portmapper/daemon/udp_ports.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "portmapper/daemon/log.h"

namespace sdp::pm {
namespace {

constexpr size_t kMaxOwn = 128;

bool Contains(const std::vector<Endpoint>& addresses, const Endpoint& address) {
  return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
}

bool HasPortFor(const std::vector<UdpPort>& ports, const Endpoint& address) {
  return std::any_of(ports.begin(), ports.end(),
                     [&](const UdpPort& port) { return port.local() == address; });
}

}  // namespace

absl::Status UdpPorts::Open(const std::vector<Endpoint>& addresses) {
  const bool everywhere = addresses.empty();
  const std::vector<Endpoint> wanted =
      everywhere ? std::vector<Endpoint>{{IpVersion::kV4, {}, kPmUdpPort}, {IpVersion::kV6, {}, kPmUdpPort}}
                 : addresses;
  for (const Endpoint& address : wanted) {
    absl::StatusOr<UdpPort> port = UdpPort::Open(address);
    if (port.ok()) {
      asked_.push_back(*std::move(port));
    } else if (everywhere && address.version == IpVersion::kV6 && absl::IsUnavailable(port.status())) {
      Log(LogLevel::kInfo, "no IPv6 on this host");
    } else {
      return port.status();
    }
  }
  FollowAddresses([](int) { return absl::OkStatus(); });
  return absl::OkStatus();
}

// An address that cannot be bound (an IPv6 one that is not verified yet, one address too many) is served by
// the socket for all.
void UdpPorts::FollowAddresses(Watch watch) {
  const std::vector<Endpoint> addresses = InterfaceAddresses();
  std::erase_if(own_, [&](const UdpPort& port) {
    if (Contains(addresses, HostOf(port.local()))) return false;
    unsent_ += port.unsent();
    not_unicast_ += port.not_unicast();
    dropped_ += port.dropped_by_kernel();
    return true;
  });
  for (UdpPort& wildcard : asked_) {
    if (!wildcard.local().IsWildcard()) continue;
    for (Endpoint address : addresses) {
      address.port = wildcard.local().port;
      if (address.version != wildcard.local().version || own_.size() >= kMaxOwn) continue;
      if (HasPortFor(own_, address) || HasPortFor(asked_, address)) continue;
      absl::StatusOr<UdpPort> port = wildcard.OpenBeside(address);
      if (!port.ok()) {
        Log(LogLevel::kDebug, "%s has no socket of its own: %s", address.ToString(), port.status().message());
        continue;
      }
      if (!port->SetFilter(announcements_).ok() || !watch(port->fd()).ok()) continue;
      own_.push_back(*std::move(port));
    }
  }
}

absl::Status UdpPorts::WatchAll(Watch watch) const {
  absl::Status status;
  for (const auto* ports : {&asked_, &own_}) {
    for (const UdpPort& port : *ports) status.Update(watch(port.fd()));
  }
  if (watch_.fd() >= 0) status.Update(watch(watch_.fd()));
  return status;
}

bool UdpPorts::HandleReadable(int fd, UdpPort::Serve serve, Watch watch) {
  if (fd == watch_.fd()) {
    if (watch_.HandleReadable()) FollowAddresses(watch);
    return true;
  }
  for (auto* ports : {&own_, &asked_}) {
    for (UdpPort& port : *ports) {
      if (port.fd() != fd) continue;
      port.HandleReadable(serve);
      return true;
    }
  }
  return false;
}

absl::Status UdpPorts::GiveTo(uid_t user) const {
  for (const auto* ports : {&asked_, &own_}) {
    for (const UdpPort& port : *ports) {
      if (fchown(port.fd(), user, static_cast<gid_t>(-1)) != 0)
        return absl::ErrnoToStatus(errno, "fchown of a socket");
    }
  }
  return absl::OkStatus();
}

absl::Status UdpPorts::SetFilter(Announcements announcements) {
  announcements_ = announcements;
  absl::Status status;
  for (const auto* ports : {&asked_, &own_}) {
    for (const UdpPort& port : *ports) status.Update(port.SetFilter(announcements));
  }
  return status;
}

std::string UdpPorts::Describe() const {
  return absl::StrJoin(asked_, " ", [](std::string* out, const UdpPort& port) {
    absl::StrAppend(out, port.local().ToString());
  });
}

uint64_t UdpPorts::unsent() const {
  uint64_t sum = unsent_;
  for (const auto* ports : {&asked_, &own_}) {
    for (const UdpPort& port : *ports) sum += port.unsent();
  }
  return sum;
}

uint64_t UdpPorts::not_unicast() const {
  uint64_t sum = not_unicast_;
  for (const auto* ports : {&asked_, &own_}) {
    for (const UdpPort& port : *ports) sum += port.not_unicast();
  }
  return sum;
}

uint64_t UdpPorts::dropped_by_kernel() const {
  uint64_t sum = dropped_;
  for (const auto* ports : {&asked_, &own_}) {
    for (const UdpPort& port : *ports) sum += port.dropped_by_kernel();
  }
  return sum;
}

}  // namespace sdp::pm
