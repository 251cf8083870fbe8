#include "preload/socket/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "preload/real_calls.h"

namespace sdp::preload {

namespace {

// Has `ask(name, &length)` fill an address. The kernel cuts a longer name of another family, and returns the
// whole length.
template <typename Ask>
int AskFor(Address* address, Ask ask) {
  address->length = sizeof address->storage;
  const int result = ask(address->get(), &address->length);
  address->length = result < 0 ? 0 : std::min<socklen_t>(address->length, sizeof address->storage);
  return result;
}

}  // namespace

Address LocalAddress(int fd) {
  Address address;
  AskFor(&address, [&](auto... name) { return real.getsockname(fd, name...); });
  return address;
}

Address PeerAddress(int fd) {
  Address address;
  AskFor(&address, [&](auto... name) { return real.getpeername(fd, name...); });
  return address;
}

int AcceptFrom(int listener, int flags, Address* peer) {
  return AskFor(peer, [&](auto... name) { return real.accept4(listener, name..., flags); });
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
  return ntohs(address.storage.sin6_port);
}

void SetPort(Address& address, uint16_t port) { address.storage.sin6_port = htons(port); }

pm::Endpoint ToEndpoint(const Address& address) {
  auto endpoint = pm::FromSockaddr(address.get(), address.length);
  if (endpoint && endpoint->IsLinkLocal()) endpoint->scope = address.storage.sin6_scope_id;
  return endpoint ? pm::NormalizeMapped(*endpoint) : pm::Endpoint{};
}

bool WithinHost(const Address& local, const Address& peer) {
  const pm::Endpoint here = ToEndpoint(local);
  const pm::Endpoint there = ToEndpoint(peer);
  return !here.IsWildcard() &&
         (pm::HostOf(here) == pm::HostOf(there) || (here.IsLoopback() && there.IsLoopback()));
}

Address ToAddress(const pm::Endpoint& endpoint, int domain, uint32_t scope_id) {
  sockaddr_storage name;
  const auto length = pm::ToSockaddr(domain == AF_INET6 ? pm::ToMapped(endpoint) : endpoint, &name, scope_id);
  return MakeAddress(reinterpret_cast<const sockaddr*>(&name), length);
}

}  // namespace sdp::preload
