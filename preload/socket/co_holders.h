// Finds out whether another process has a socket that has no connection yet.
#ifndef SDP_PRELOAD_SOCKET_CO_HOLDERS_H_
#define SDP_PRELOAD_SOCKET_CO_HOLDERS_H_

#include <cstdint>

namespace sdp::preload {

// Why such a socket is TCP.
inline constexpr const char* kCommon = "another process has the socket, too";

// How another process may have the socket: by the same number, as in a child of fork, or by any number, as
// after a message.
enum class CoHolders : uint8_t { kNone, kBySameNumber, kByAnyNumber };

// Returns true if another process also has the socket `fd` and keeps it. Waits 100 ms at most for one that is
// about to close it, or to exit. Walks through /proc as far as permissions allow. Keeps errno.
bool OthersHold(int fd, CoHolders holders);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_CO_HOLDERS_H_
