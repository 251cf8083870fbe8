// Finds ports that no TCP socket has: siw binds a TCP socket of the kernel's to each RDMA port.
#ifndef SDP_VERBS_IBV_TCP_PORT_H_
#define SDP_VERBS_IBV_TCP_PORT_H_

#include <sys/socket.h>

#include <cstdint>

namespace sdp::ibv {

// Returns the port of an IPv4 or IPv6 address, in the host's byte order.
uint16_t PortOf(const sockaddr& address);
void SetPort(sockaddr_storage* address, uint16_t port);

// Returns a port of that address that no TCP socket of this host has now; 0 if none was found.
uint16_t FreeTcpPort(const sockaddr_storage& address);

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_TCP_PORT_H_
