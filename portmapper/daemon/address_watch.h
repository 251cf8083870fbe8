// The addresses of this host's interfaces, and a descriptor that tells when they change.
#ifndef SDP_PORTMAPPER_DAEMON_ADDRESS_WATCH_H_
#define SDP_PORTMAPPER_DAEMON_ADDRESS_WATCH_H_

#include <vector>

#include "portmapper/daemon/unique_fd.h"
#include "portmapper/endpoint.h"

namespace sdp::pm {

class AddressWatch {
 public:
  // Without the kernel's consent (rtnetlink) fd() is -1 and addresses are never told to change.
  AddressWatch();

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Call when fd() is readable: true if addresses may have changed, however often.
  bool HandleReadable();

 private:
  UniqueFd fd_;
};

// Unicast addresses, with port 0; not the link-local ones of IPv6, which mean nothing without their
// interface.
[[nodiscard]] std::vector<Endpoint> InterfaceAddresses();

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_ADDRESS_WATCH_H_
