#include "preload/socket/port_probe.h"

#include <netinet/in.h>

#include <cerrno>

#include "preload/hidden_fds.h"
#include "preload/real_calls.h"
#include "preload/socket/option_log.h"

namespace sdp::preload {

std::unique_ptr<PortProbe> PortProbe::Start(int tcp_fd, const Address& port) {
  const int family = port.family();
  const int fd = real.socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  const int hidden = fd < 0 ? -1 : HiddenFds::Hide(fd);
  if (hidden < 0) return nullptr;
  std::unique_ptr<PortProbe> probe(new PortProbe(hidden));
  FollowRoute(tcp_fd, hidden);
  Address source = LocalAddress(tcp_fd);
  if (source.family() == family) {
    // A filter may judge by the source address. The port is the kernel's choice at connect.
    SetPort(source, 0);
    const int one = 1;
    real.setsockopt(hidden, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    real.bind(hidden, source.get(), source.length);
  }
  if (real.connect(hidden, port.get(), port.length) != 0 && errno != EINPROGRESS) return nullptr;
  return probe;
}

PortProbe::~PortProbe() { HiddenFds::Close(fd_); }

}  // namespace sdp::preload
