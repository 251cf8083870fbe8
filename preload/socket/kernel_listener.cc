#include "preload/socket/kernel_listener.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "preload/config.h"
#include "preload/hidden_fds.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/kernel_rnic.h"
#include "preload/socket/sdp_port.h"
#include "preload/socket/stats.h"

namespace sdp::preload {
namespace {

// While there is no room, requests wait with the connection manager; this is the time between looks.
constexpr Duration kFullPause = std::chrono::milliseconds(20);

// Returns this host's addresses at which other hosts too reach a listener at `conventional`. Link-local ones
// are left out: the port mapper's answer could not say which link.
std::vector<pm::Endpoint> AddressesOf(const Address& conventional, bool v6only) {
  const pm::Endpoint at = ToEndpoint(conventional);
  if (!at.IsWildcard()) return {pm::HostOf(at)};
  const bool v6 = conventional.family() == AF_INET6;
  std::vector<pm::Endpoint> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const socklen_t length = i->ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const auto address = pm::FromSockaddr(i->ifa_addr, length);
    if (!address || address->IsLinkLocal()) continue;
    const bool covered = address->version == pm::IpVersion::kV6 ? v6 : !v6 || !v6only;
    if (covered) addresses.push_back(pm::HostOf(*address));
  }
  freeifaddrs(list);
  return addresses;
}

// At the first port of the candidates that is free. The embedded RNIC's listener has one of them already.
std::unique_ptr<ibv::Listener> OpenAt(Address local, uint16_t conventional, int backlog, std::string* why) {
  constexpr size_t kMostTried = 128;  // a failure may have another cause than the port
  const SdpPorts candidates = CandidatePorts(conventional, config().sdp_ports, config().sdp_port_offset);
  for (size_t i = 0; i < std::min(candidates.ports.size(), kMostTried); ++i) {
    SetPort(local, candidates.ports[i]);
    if (auto rnic = ibv::Listener::Open(local.get(), backlog, why)) return rnic;
  }
  return nullptr;
}

}  // namespace

KernelListener::KernelListener(KernelListenerOwner* owner, std::unique_ptr<ibv::Listener> rnic,
                               const pm::Endpoint& address)
    : owner_(owner), rnic_(std::move(rnic)), address_(address) {}

std::vector<std::unique_ptr<KernelListener>> KernelListener::OpenAll(KernelListenerOwner* owner,
                                                                     const Address& conventional, bool v6only,
                                                                     int backlog, std::string* why) {
  std::vector<std::unique_ptr<KernelListener>> all;
  if (!MayUseKernelRnic(why)) return all;
  *why = "no RDMA device has the address " + ToEndpoint(conventional).ToString();
  for (pm::Endpoint address : AddressesOf(conventional, v6only)) {
    const Address local = ToAddress(address, address.version == pm::IpVersion::kV6 ? AF_INET6 : AF_INET, 0);
    if (ibv::DeviceOf(local.get()).empty()) continue;
    auto rnic = OpenAt(local, Port(conventional), backlog, why);
    if (rnic == nullptr) continue;
    address.port = rnic->port();
    all.emplace_back(new KernelListener(owner, std::move(rnic), address));
  }
  return all;
}

bool KernelListener::registered() const {
  pollfd registration{.fd = registration_fd_.load(), .events = POLLIN, .revents = 0};
  timespec zero{};
  // Readable means end of file: the daemon is gone.
  return registration.fd >= 0 && real.ppoll(&registration, 1, &zero, nullptr) == 0;
}

void KernelListener::SetRegistration(int fd) {
  HiddenFds::Close(registration_fd_.exchange(-1));
  HiddenFds::HideTracked(fd, &registration_fd_);
}

void KernelListener::Start(int fd) {
  if (stats::StatsSegment* segment = Statistics(); segment != nullptr && slot_ == nullptr) {
    const int family = address_.version == pm::IpVersion::kV6 ? AF_INET6 : AF_INET;
    stats::ConnectionRecord record = DescribeListener(fd, LocalAddress(fd), ToAddress(address_, family, 0));
    stats::SetText(record.rnic, device().c_str());
    stats::SetText(record.link, stats::kKernelLink);
    slot_ = segment->AcquireSlot(record);
  }
  Background::Add(this, Duration::zero());
}

void KernelListener::CountAccepted() {
  if (slot_ == nullptr) return;
  stats::Counters counters = stats::StatsSegment::LastPublished(slot_).counters;
  ++counters.accepted_sdp;
  stats::StatsSegment::Publish(slot_, counters);
}

void KernelListener::Hide() {
  if (slot_ == nullptr) return;
  if (stats::StatsSegment* segment = OpenStatistics()) segment->ReleaseSlot(slot_);
  slot_ = nullptr;
}

void KernelListener::Close() {
  closed_ = true;
  Hide();
  HiddenFds::Close(registration_fd_.exchange(-1));
  // The helper may be asleep on its descriptor.
  if (Background::Holds(this)) {
    Background::Add(this, Duration::zero());
  } else {
    rnic_.reset();
  }
}

void KernelListener::Disown() {
  HiddenFds::Close(registration_fd_.exchange(-1));
  (void)rnic_.release();
}

Background::Wait KernelListener::Run(Time now) {
  std::lock_guard lock(owner_->kernel_listener_mutex());
  if (closed_) {
    rnic_.reset();
    return {.done = true};
  }
  while (owner_->HasRoom()) {
    auto connector = rnic_->Accept(config().handshake_timeout, now);
    if (connector == nullptr && rnic_->gone()) {
      // Ends the registration, so that the port mapper sends clients to the SDP listener.
      SDP_LOG(kInfo, "the RDMA device %s was removed: no longer SDP on %s", rnic_->device().c_str(),
              address_.ToString().c_str());
      gone_ = closed_ = true;
      Hide();
      HiddenFds::Close(registration_fd_.exchange(-1));
      rnic_.reset();
      return {.done = true};
    }
    if (connector == nullptr) return {.fd = rnic_->event_fd(), .events = POLLIN};
    owner_->TakeOnFromRnic(std::move(connector));
  }
  return {.deadline = now + kFullPause};
}

}  // namespace sdp::preload
