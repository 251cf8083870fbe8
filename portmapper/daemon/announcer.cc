#include "portmapper/daemon/announcer.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace sdp::pm {
namespace {

constexpr Duration kSoon = std::chrono::milliseconds(20);

// The address under which a listener on the wildcard is reached, if it can be reached under it.
bool Serves(const Registration& registration, const Endpoint& address) {
  const bool v4 = address.version == IpVersion::kV4;
  if (registration.conventional.version == IpVersion::kV4) return v4;
  return !v4 || !registration.v6_only;
}

}  // namespace

Announcer::Announcer(const AnnouncerOptions& options) : options_(options) { Connect(); }

Announcer::~Announcer() {
  for (const Service& service : announced_) Send(service, 0);
}

void Announcer::Connect() {
  sockaddr_storage name;
  socklen_t length = ToSockaddr(options_.central, &name);
  fd_.Reset(socket(name.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_ || connect(fd_.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    fd_.Reset();
    return;
  }
  length = sizeof name;
  getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&name), &length);
  source_ = HostOf(FromSockaddr(name).value_or(Endpoint{}));
}

absl::flat_hash_set<Announcer::Service> Announcer::ServicesOf(
    const std::vector<std::pair<RegistrationId, Registration>>& registrations) const {
  const std::vector<Endpoint> own =
      options_.addresses.empty() ? std::vector<Endpoint>{source_} : options_.addresses;
  absl::flat_hash_set<Service> services;
  // What a kernel RNIC serves, as a client that asks here is told.
  absl::flat_hash_set<Endpoint> of_rnics;
  for (const auto& [id, registration] : registrations) {
    if (!registration.of_rnic || (registration.sdp.IsLoopback() && !options_.central.IsLoopback())) continue;
    Endpoint address = registration.sdp;
    address.port = registration.conventional.port;
    const bool announced = !registration.conventional.IsWildcard() ||
                           std::find(own.begin(), own.end(), HostOf(address)) != own.end();
    if (announced && of_rnics.insert(address).second) services.emplace(address, registration.sdp);
  }
  for (const auto& [id, registration] : registrations) {
    if (registration.of_rnic) continue;
    const Endpoint& conventional = registration.conventional;
    // Another host cannot reach our loopback; only a PMSP on this host can make use of it.
    if (conventional.IsLoopback() && !options_.central.IsLoopback()) continue;
    if (!conventional.IsWildcard()) {
      if (!of_rnics.contains(conventional)) services.emplace(conventional, registration.sdp);
      continue;
    }
    for (Endpoint address : own) {
      if (!Serves(registration, address)) continue;
      Endpoint sdp = address;
      address.port = conventional.port;
      sdp.port = registration.sdp.port;
      if (!of_rnics.contains(address)) services.emplace(address, sdp);
    }
  }
  return services;
}

void Announcer::HandleTimeout(const std::vector<std::pair<RegistrationId, Registration>>& registrations,
                              Time now) {
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(1000) * options_.lifetime / 3;
  if (!fd_ || send_failed_) Connect();
  send_failed_ = false;
  if (!fd_) return;
  const auto services = ServicesOf(registrations);
  for (const Service& service : announced_) {
    if (!services.contains(service)) Send(service, 0);
  }
  for (const Service& service : services) Send(service, options_.lifetime);
  announced_ = services;
}

void Announcer::HandleChange(Time now) { next_ = std::min(next_, now + kSoon); }

void Announcer::Send(const Service& service, uint8_t lifetime) {
  Announcement announcement;
  announcement.lifetime = lifetime;
  announcement.weight = options_.weight;
  announcement.cookie = cookie_;
  announcement.conventional = service.first;
  announcement.sdp = service.second;
  const Datagram datagram = Serialize(announcement);
  // ECONNREFUSED tells of an earlier one: no PMSP there, or not yet.
  if (fd_ && send(fd_.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL) < 0 && errno != ECONNREFUSED &&
      errno != EAGAIN) {
    send_failed_ = true;
  }
}

void Announcer::HandleReadable(Time now) {
  std::array<std::byte, kPmMessageSize + 1> buffer;
  while (true) {
    const ssize_t length = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (length < 0 && errno == ECONNREFUSED) continue;
    if (length < 0) return;
    const auto reply = ParseAnnouncement(Bytes(buffer).first(static_cast<size_t>(length)));
    if (!reply) continue;
    if (reply->type == AnnouncementType::kChallenge && reply->cookie != cookie_) {
      cookie_ = reply->cookie;
      next_ = now;
    } else if (reply->type == AnnouncementType::kRefuse) {
      if (uint64_t suppressed = 0; refused_limiter_.Allow(now, &suppressed)) {
        Log(LogLevel::kError,
            "%s refuses to serve %s for this host: it is not told to, has no room, or our address is another "
            "(%d more refusals before)",
            options_.central.ToString(), reply->conventional.ToString(), suppressed);
      }
    }
  }
}

}  // namespace sdp::pm
