// Socket addresses, as the kernel, the application and the port mapper exchange them.
#ifndef SDP_PRELOAD_SOCKET_ADDRESS_H_
#define SDP_PRELOAD_SOCKET_ADDRESS_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include "portmapper/endpoint.h"

namespace sdp::preload {

struct Address {
  sockaddr_in6 storage{};  // or a sockaddr_in
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return length == 0 ? AF_UNSPEC : storage.sin6_family; }
};

// Returns what the kernel says about the descriptor; of length 0 if it says nothing.
Address LocalAddress(int fd);
Address PeerAddress(int fd);
// accept4 that also returns the peer's address, which the socket no longer tells once the peer has reset it.
// Returns -1 with errno on failure.
int AcceptFrom(int listener, int flags, Address* peer);
Address MakeAddress(const sockaddr* address, socklen_t length);

// Copies as getsockname and accept do: truncated to *length; *length becomes the full size.
void CopyOut(const Address& address, sockaddr* out, socklen_t* length);

// Reads and writes an address (core/base/archive.h).
template <typename Archive>
void Visit(Archive& ar, Address& address) {
  auto length = static_cast<uint8_t>(address.length);
  ar.Number(length);
  ar.Require(length == 0 || length == sizeof(sockaddr_in) || length == sizeof(sockaddr_in6));
  if (!ar.ok()) length = 0;
  address.length = length;
  ar.Octets({reinterpret_cast<std::byte*>(&address.storage), length});
}

uint16_t Port(const Address& address);
void SetPort(Address& address, uint16_t port);

// Returns the endpoint normalised (IPv4-mapped becomes IPv4), or the wildcard endpoint for any other family.
pm::Endpoint ToEndpoint(const Address& address);
// Returns true if traffic between the two never leaves this host: they are the same address, or both
// loopback.
bool WithinHost(const Address& local, const Address& peer);
// Returns the address as a socket of `domain` names it: an AF_INET6 socket reaches an IPv4 endpoint by its
// mapped form.
Address ToAddress(const pm::Endpoint& endpoint, int domain, uint32_t scope_id);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_ADDRESS_H_
