#include "portmapper/daemon/own_addresses.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <chrono>

namespace sdp::pm {
namespace {

constexpr Duration kRefresh = std::chrono::seconds(5);

}  // namespace

bool OwnAddresses::Contains(const Endpoint& address, Time now) {
  const Endpoint host = HostOf(NormalizeMapped(address));
  if (host.IsLoopback()) return true;
  if (!looked_ || now - *looked_ >= kRefresh) {
    looked_ = now;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) == 0) {
      addresses_.clear();
      for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr) continue;
        const socklen_t length =
            i->ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        if (const auto own = FromSockaddr(i->ifa_addr, length)) addresses_.insert(HostOf(*own));
      }
      freeifaddrs(list);
    }
  }
  return addresses_.contains(host);
}

}  // namespace sdp::pm
