#include "portmapper/daemon/address_watch.h"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace sdp::pm {

AddressWatch::AddressWatch()
    : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE)) {
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (fd_ && bind(fd_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) fd_.Reset();
}

bool AddressWatch::HandleReadable() {
  bool changed = false;
  std::array<char, 8192> news;
  while (true) {
    // What it says is looked up afresh, so that news that were lost (ENOBUFS) are no less than those that
    // came.
    const ssize_t size = recv(fd_.get(), news.data(), news.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno != ENOBUFS) return changed;
    changed = true;
  }
}

std::vector<Endpoint> InterfaceAddresses() {
  std::vector<Endpoint> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return out;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    const bool v6 = i->ifa_addr->sa_family == AF_INET6;
    if (!v6 && i->ifa_addr->sa_family != AF_INET) continue;
    if (v6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr)) continue;
    const auto address = FromSockaddr(i->ifa_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    if (address && !address->IsWildcard() && !address->IsMulticastOrBroadcast())
      out.push_back(HostOf(*address));
  }
  freeifaddrs(list);
  return out;
}

}  // namespace sdp::pm
