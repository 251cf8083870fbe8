// Tells how much of a link's TCP stream the processes that share it have read. Has no state and no lock.
#ifndef SDP_PRELOAD_SOCKET_LINK_POSITION_H_
#define SDP_PRELOAD_SOCKET_LINK_POSITION_H_

#include <cstdint>

namespace sdp::preload {

inline constexpr uint64_t kNoLinkPosition = UINT64_MAX;

// Returns bytes from an arbitrary origin. kNoLinkPosition: it cannot be told.
[[nodiscard]] uint64_t LinkPosition(int fd);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LINK_POSITION_H_
