// getsockopt(TCP_INFO) of a connection that runs over SDP. Functions without state or lock.
#ifndef SDP_PRELOAD_SOCKET_TCP_INFO_H_
#define SDP_PRELOAD_SOCKET_TCP_INFO_H_

#include <sys/socket.h>

#include <cstdint>

#include "preload/socket/clock.h"

namespace sdp::preload {

// The stream's values, which replace those of the link's TCP.
struct StreamFacts {
  uint8_t tcp_state = 0;   // TCP_ESTABLISHED and so on
  uint64_t bytes_out = 0;  // of the application's that were given to the link, or read by the peer
  uint64_t bytes_in = 0;
  uint64_t unsent = 0;  // accepted, and still in this process
  bool alive = true;    // false: nothing of it is in flight
};

// Fills in the link's own TCP_INFO (segments, round trip, retransmissions, windows), with the stream's state
// and bytes. Result, errno and lengths are getsockopt's.
int GetTcpInfo(int link_fd, const StreamFacts& facts, void* value, socklen_t* length);
// For a socket that is still connecting: SYN_SENT. For a listener: `waiting` more connections in its queue.
int GetTcpInfoConnecting(int fd, void* value, socklen_t* length);
int GetTcpInfoListening(int fd, uint32_t waiting, void* value, socklen_t* length);

// Returns how many bytes the peer's kernel has last said it takes; 0: not known.
[[nodiscard]] uint32_t PeerWindow(int link_fd);
// Returns a listening socket's backlog: what listen() asked for, within net.core.somaxconn.
[[nodiscard]] uint32_t BacklogInForce(int fd);
// Returns the link's smoothed round-trip time; zero: not known.
[[nodiscard]] Duration RoundTrip(int link_fd);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_TCP_INFO_H_
