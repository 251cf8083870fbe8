// Who has a UDP port of this host, for a message to people.
#ifndef SDP_PORTMAPPER_DAEMON_PORT_HOLDER_H_
#define SDP_PORTMAPPER_DAEMON_PORT_HOLDER_H_

#include <cstdint>
#include <string>

namespace sdp::pm {

// "process 4711 (dnsmasq) of user nobody"; "a process of user nobody" if this process may not look further;
// empty if the port is free. Reads /proc: slow, for start-up alone.
[[nodiscard]] std::string HolderOfUdpPort(uint16_t port);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_PORT_HOLDER_H_
