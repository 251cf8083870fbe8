#include "preload/socket/sdp_port.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "preload/real_calls.h"
#include "preload/socket/option_log.h"

namespace sdp::preload {
namespace {

constexpr uint16_t kFirstUnprivileged = 1024;
// Ports below 1024 without a name at IANA. A service that starts later finds its own port free.
constexpr PortRange kNamelessPrivileged[] = {{914, 952}, {954, 988}};

void Append(std::vector<uint16_t>* ports, PortRange range, uint32_t start) {
  const uint32_t count = range.last - range.first + 1U;
  for (uint32_t i = 0; i < count; ++i)
    ports->push_back(static_cast<uint16_t>(range.first + (start + i) % count));
}

}  // namespace

SdpPorts CandidatePorts(uint16_t conventional, std::optional<PortRange> range,
                        std::optional<uint16_t> offset) {
  SdpPorts found;
  if (offset) {
    const uint32_t twin = uint32_t{conventional} + *offset;
    found.name = "port " + std::to_string(twin);
    if (twin <= UINT16_MAX) {
      found.ports.push_back(static_cast<uint16_t>(twin));
      return found;
    }
  }
  if (range) {
    found.name = "ports " + std::to_string(range->first) + "-" + std::to_string(range->last);
    Append(&found.ports, *range, conventional);
  }
  if (offset || range) return found;
  if (conventional < kFirstUnprivileged)
    for (const PortRange& nameless : kNamelessPrivileged) Append(&found.ports, nameless, conventional);
  found.ports.push_back(0);
  return found;
}

const char* Distrust(const Config& settings, const pm::Endpoint& target, const pm::Endpoint& sdp_address) {
  if (settings.pm_server) return nullptr;
  if (!settings.pm_redirect && pm::HostOf(sdp_address) != pm::HostOf(target))
    return "another host than the one that was asked";
  if (!settings.any_privileged_port && target.port < kFirstUnprivileged &&
      sdp_address.port >= kFirstUnprivileged)
    return "a port that any user can get, for one below 1024";
  return nullptr;
}

std::optional<BindError> BindSdpPort(int fd, int conventional_fd, const Address& conventional) {
  const Config& settings = config();
  const SdpPorts candidates =
      CandidatePorts(Port(conventional), settings.sdp_ports, settings.sdp_port_offset);
  if (candidates.ports.empty())
    return BindError{.error = EADDRNOTAVAIL, .text = "SDP_PORT_OFFSET leads beyond 65535"};
  if (candidates.ports.front() != 0) {
    // A service that starts again may find connections of its former self at the port. Of several listeners
    // at one conventional address each has the twin.
    const int one = 1;
    real.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (settings.sdp_port_offset) CopyOption(conventional_fd, fd, SO_REUSEPORT);
  }
  Address address = conventional;
  for (const uint16_t port : candidates.ports) {
    SetPort(address, port);
    if (real.bind(fd, address.get(), address.length) == 0) return std::nullopt;
    // A range may begin with ports that this user may not have.
    if (errno != EADDRINUSE && errno != EACCES) break;
  }
  const int error = errno;
  return BindError{.error = error,
                   .text = (candidates.name.empty() ? "" : candidates.name + ": ") + strerrordesc_np(error)};
}

}  // namespace sdp::preload
