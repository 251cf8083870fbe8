// Whether a registered listener still listens. The daemon keeps no descriptor of it, and a process could
// close its listener but keep the registration, and so answer for whoever binds the port next.
#ifndef SDP_PORTMAPPER_DAEMON_LISTENER_WATCH_H_
#define SDP_PORTMAPPER_DAEMON_LISTENER_WATCH_H_

#include <cstdint>
#include <optional>

#include "portmapper/daemon/listener_proof.h"
#include "portmapper/daemon/unique_fd.h"

namespace sdp::pm {

class ListenerWatch {
 public:
  // Asks the kernel by netlink (sock_diag): one exchange when the address has one listener, a search of the
  // listeners on this port when it has several. On a kernel without inet_diag it reads /proc/net/tcp instead,
  // slower. False too if the kernel cannot be asked at all.
  [[nodiscard]] bool StillListening(const ListenerFacts& listener);

 private:
  // Empty: the kernel does not answer this question.
  [[nodiscard]] std::optional<bool> AskExact(const ListenerFacts& listener);
  [[nodiscard]] std::optional<bool> AskAll(const ListenerFacts& listener);
  [[nodiscard]] bool Send(const ListenerFacts& listener, uint16_t flags);

  UniqueFd netlink_;
  uint32_t sequence_ = 0;
};

// The same question answered from /proc/net/tcp and tcp6, in time proportional to all connections of the
// host.
[[nodiscard]] bool ListensAccordingToProc(const ListenerFacts& listener);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_LISTENER_WATCH_H_
