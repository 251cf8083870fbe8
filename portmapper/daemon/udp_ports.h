// All UDP sockets of the service. One that is bound to all addresses has to be told the address of each
// question, which costs more than a tenth of an answer; so beside it there is one for each address of the
// host, which the kernel prefers, and which comes and goes with the address. The one for all hears the rest.
#ifndef SDP_PORTMAPPER_DAEMON_UDP_PORTS_H_
#define SDP_PORTMAPPER_DAEMON_UDP_PORTS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "portmapper/daemon/address_watch.h"
#include "portmapper/daemon/udp_port.h"

namespace sdp::pm {

class UdpPorts {
 public:
  // Binds `addresses`; without any, all addresses of IPv4 and, where the host has it, IPv6, with the
  // service's own port.
  [[nodiscard]] absl::Status Open(const std::vector<Endpoint>& addresses);

  // Tells of each descriptor to be watched for reading: all there are now, and those that come later. A
  // closed one is forgotten by epoll itself.
  using Watch = absl::FunctionRef<absl::Status(int fd)>;
  [[nodiscard]] absl::Status WatchAll(Watch watch) const;
  // Takes care of `fd` if it is one of ours; false if not. New ones are told to `watch`.
  bool HandleReadable(int fd, UdpPort::Serve serve, Watch watch);

  // Before root becomes `user`: the sockets go with it. The kernel lets only sockets of one user share a port
  // for the moment in which the socket of a new address is bound.
  [[nodiscard]] absl::Status GiveTo(uid_t user) const;

  [[nodiscard]] absl::Status SetFilter(Announcements announcements);
  // Those that were asked for: "0.0.0.0:3935 [::]:3935".
  [[nodiscard]] std::string Describe() const;

  [[nodiscard]] uint64_t unsent() const;
  [[nodiscard]] uint64_t not_unicast() const;
  [[nodiscard]] uint64_t dropped_by_kernel() const;
  [[nodiscard]] size_t sockets() const { return asked_.size() + own_.size(); }

 private:
  void FollowAddresses(Watch watch);

  std::vector<UdpPort> asked_;  // those asked for
  std::vector<UdpPort> own_;    // of single addresses, beside those for all
  AddressWatch watch_;
  Announcements announcements_ = Announcements::kDropped;
  // Of sockets that are closed.
  uint64_t unsent_ = 0;
  uint64_t not_unicast_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_UDP_PORTS_H_
