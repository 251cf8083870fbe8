// The port mapper of this host, as a preloaded process would look for it.
#ifndef SDP_TOOLS_SDP_RUN_DAEMON_H_
#define SDP_TOOLS_SDP_RUN_DAEMON_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sdp::run {

enum class DaemonState : uint8_t {
  kAnswers,
  kNoSocket,   // there is no such path
  kNoDaemon,   // the socket is there, and no process listens at it
  kForbidden,  // this user may not connect
  kStranger,   // it is served by a user who is neither root, nor this one, nor whom root lets serve the host
  kBroken,     // another error
};
struct DaemonLook {
  DaemonState state = DaemonState::kBroken;
  uid_t user = 0;  // kStranger: who serves; kNoDaemon, kForbidden: whose the socket is
  int error = 0;   // kBroken: errno
};

// The local sockets that a preloaded process would register with, the first that answers: SDP_PMD_SOCKET, or
// this user's and the host's.
std::vector<std::string> LocalSocketPaths();
DaemonLook LookForDaemon(const std::string& socket_path);
// Whether a port mapper answers there that the library would register with.
bool DaemonRuns(const std::string& socket_path);
// Whether UDP port `port` can be bound on every address.
bool UdpPortIsFree(uint16_t port);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_DAEMON_H_
