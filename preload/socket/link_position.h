// How much of a link's TCP stream the processes that have it have read.
#ifndef SDP_PRELOAD_SOCKET_LINK_POSITION_H_
#define SDP_PRELOAD_SOCKET_LINK_POSITION_H_

#include <cstdint>

namespace sdp::preload {

inline constexpr uint64_t kNoLinkPosition = UINT64_MAX;

// In bytes from an arbitrary origin. kNoLinkPosition: it cannot be told.
[[nodiscard]] uint64_t LinkPosition(int fd);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LINK_POSITION_H_
