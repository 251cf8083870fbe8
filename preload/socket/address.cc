#include "preload/socket/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "preload/real_calls.h"

namespace sdp::preload {

Address LocalAddress(int fd) {
  Address address;
  address.length = sizeof address.storage;
  if (real.getsockname(fd, address.get(), &address.length) != 0) address.length = 0;
  return address;
}

Address PeerAddress(int fd) {
  Address address;
  address.length = sizeof address.storage;
  if (real.getpeername(fd, address.get(), &address.length) != 0) address.length = 0;
  return address;
}

int AcceptFrom(int listener, int flags, Address* peer) {
  peer->length = sizeof peer->storage;
  return real.accept4(listener, peer->get(), &peer->length, flags);
}

Address MakeAddress(const sockaddr* address, socklen_t length) {
  Address result;
  result.length = std::min<socklen_t>(length, sizeof result.storage);
  std::memcpy(&result.storage, address, result.length);
  return result;
}

void CopyOut(const Address& address, sockaddr* out, socklen_t* length) {
  if (out == nullptr || length == nullptr) return;
  std::memcpy(out, &address.storage, std::min(*length, address.length));
  *length = address.length;
}

uint16_t Port(const Address& address) {
  // sin_port and sin6_port have the same offset.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

void SetPort(Address& address, uint16_t port) {
  reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
}

pm::Endpoint ToEndpoint(const Address& address) {
  auto endpoint = pm::FromSockaddr(address.get(), address.length);
  if (endpoint && endpoint->IsLinkLocal())
    endpoint->scope = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_scope_id;
  return endpoint ? pm::NormalizeMapped(*endpoint) : pm::Endpoint{};
}

bool WithinHost(const Address& local, const Address& peer) {
  const pm::Endpoint here = ToEndpoint(local);
  const pm::Endpoint there = ToEndpoint(peer);
  return !here.IsWildcard() &&
         (pm::HostOf(here) == pm::HostOf(there) || (here.IsLoopback() && there.IsLoopback()));
}

Address ToAddress(const pm::Endpoint& endpoint, int domain, uint32_t scope_id) {
  Address address;
  address.length =
      pm::ToSockaddr(domain == AF_INET6 ? pm::ToMapped(endpoint) : endpoint, &address.storage, scope_id);
  return address;
}

}  // namespace sdp::preload
