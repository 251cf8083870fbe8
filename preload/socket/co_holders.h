// Who else has a socket that has no connection yet.
#ifndef SDP_PRELOAD_SOCKET_CO_HOLDERS_H_
#define SDP_PRELOAD_SOCKET_CO_HOLDERS_H_

#include <cstdint>

namespace sdp::preload {

// Why such a socket is TCP.
inline constexpr const char* kCommon = "another process has the socket, too";

// How another process may have come by it: by the same number, as in a child of fork, or by any, as in a
// message.
enum class CoHolders : uint8_t { kNone, kBySameNumber, kByAnyNumber };

// Another process has the socket `fd`, too, and keeps it: one that is about to close it, or to exit, is
// waited for, 50 ms at most. A walk through /proc, as far as that may be looked at. Keeps errno.
bool OthersHold(int fd, CoHolders holders);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CO_HOLDERS_H_
