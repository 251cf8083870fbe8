// Ports of TCP's, where RDMA's are to be free of them.
#ifndef SDP_VERBS_IBV_TCP_PORT_H_
#define SDP_VERBS_IBV_TCP_PORT_H_

#include <sys/socket.h>

#include <cstdint>

namespace sdp::ibv {

// Of an address of IP, in the host's order.
uint16_t PortOf(const sockaddr& address);
void SetPort(sockaddr_storage* address, uint16_t port);

// A port of that address which no TCP socket of this host has at the moment; 0: none was found.
uint16_t FreeTcpPort(const sockaddr_storage& address);

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_TCP_PORT_H_
