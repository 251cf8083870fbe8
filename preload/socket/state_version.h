// Names the form of what one process leaves to another: frozen connections, arenas, handovers. It is a hash
// of the sources that decide on that form, and is made when they are built (preload/CMakeLists.txt). So two
// builds of these sources understand each other, and any others do not.
#ifndef SDP_PRELOAD_SOCKET_STATE_VERSION_H_
#define SDP_PRELOAD_SOCKET_STATE_VERSION_H_

#include <cstdint>

namespace sdp::preload {

extern const uint64_t kStateVersion;

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_STATE_VERSION_H_
