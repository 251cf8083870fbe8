// Which port an SDP listener takes. The order in which ports are tried follows from the settings alone, so
// that a service that starts again is likely to have its former port.
//
//   SDP_PORT_OFFSET       the conventional port plus the offset, and no other
//   SDP_PORTS             the ports of the range, from one that the conventional port chooses
//   for a port below 1024 one below 1024 that has no name at IANA; an unprivileged user cannot get it
//   else                  any: the kernel chooses
#ifndef SDP_PRELOAD_SOCKET_SDP_PORT_H_
#define SDP_PRELOAD_SOCKET_SDP_PORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "preload/config.h"
#include "preload/socket/address.h"

namespace sdp::preload {

struct SdpPorts {
  std::vector<uint16_t> ports;  // to be tried in this order; 0: any
  std::string name;             // of the first ones, for people: "port 26379", "ports 45000-45099"
};
// Pure. Where an offset leads beyond 65535 the range counts; `ports` is empty if there is none.
SdpPorts CandidatePorts(uint16_t conventional, std::optional<PortRange> range,
                        std::optional<uint16_t> offset);

// Binds `fd` beside `conventional_fd`, which has the address `conventional`, by the configuration in force.
// Returns the error and its text if no candidate is free.
struct BindError {
  int error = 0;
  std::string text;
};
std::optional<BindError> BindSdpPort(int fd, int conventional_fd, const Address& conventional);

// Pure. Returns why a connect to `target` must not follow the port mapper to `sdp_address`; null if it may.
// The port mapper's own port is not privileged, so any user of a host without one may answer in its place.
// Such a user must not be able to do more than on TCP: speak for another host, or for a port below 1024.
const char* Distrust(const Config& settings, const pm::Endpoint& target, const pm::Endpoint& sdp_address);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SDP_PORT_H_
