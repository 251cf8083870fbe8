// The names of a connection over a kernel RNIC, which the application's descriptor does not know.
#ifndef SDP_PRELOAD_SOCKET_LINK_NAMES_H_
#define SDP_PRELOAD_SOCKET_LINK_NAMES_H_

#include "preload/socket/address.h"
#include "preload/socket/session.h"

namespace sdp::preload {

struct LinkNames {
  Address local;
  Address peer;
};

[[nodiscard]] LinkNames NamesOf(const verbs::DeviceLink& device);
// Returns names of length 0 if the application's descriptor knows them.
[[nodiscard]] LinkNames NamesOf(const Session& session);

// Returns the descriptor to wait on for the connection. `fd`: the application's for it.
[[nodiscard]] inline int LinkOf(const Session& session, int fd) {
  return session.queue_pair().device() != nullptr ? session.queue_pair().event_fd() : fd;
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LINK_NAMES_H_
