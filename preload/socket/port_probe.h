// A connect to a port that is only to be known to answer. It has a hidden socket of its own, sends nothing
// but what TCP itself sends, and ends when the object does.
#ifndef SDP_PRELOAD_SOCKET_PORT_PROBE_H_
#define SDP_PRELOAD_SOCKET_PORT_PROBE_H_

#include <memory>

#include "preload/socket/address.h"

namespace sdp::preload {

class PortProbe {
 public:
  // Connects to `port` by the route and from the address of `tcp_fd`. Never blocks. Returns null without a
  // descriptor, or if the connect failed at once.
  static std::unique_ptr<PortProbe> Start(int tcp_fd, const Address& port);
  ~PortProbe();
  PortProbe(const PortProbe&) = delete;
  PortProbe& operator=(const PortProbe&) = delete;

  // Ready for POLLOUT once the port has answered, or the connect has failed.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  explicit PortProbe(int hidden_fd) : fd_(hidden_fd) {}
  int fd_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_PORT_PROBE_H_
