#include "portmapper/daemon/listener_proof.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "portmapper/daemon/unique_fd.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

namespace sdp::pm {
namespace {

template <typename T>
std::optional<T> Option(int fd, int level, int name) {
  T value{};
  socklen_t length = sizeof value;
  if (getsockopt(fd, level, name, &value, &length) != 0 || length != sizeof value) return std::nullopt;
  return value;
}

tl::unexpected<ProofFailure> Refuse(Refusal refusal, std::string text) {
  return unexpected(ProofFailure{refusal, std::move(text)});
}

Result<ListenerFacts, ProofFailure> Inspect(int fd, const char* which, uint64_t netns) {
  const auto family = Option<int>(fd, SOL_SOCKET, SO_DOMAIN);
  if (!family)
    return Refuse(Refusal::kNotTcpListener, absl::StrFormat("the %s descriptor is not a socket", which));
  if ((*family != AF_INET && *family != AF_INET6) || Option<int>(fd, SOL_SOCKET, SO_TYPE) != SOCK_STREAM ||
      Option<int>(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP) {
    return Refuse(Refusal::kNotTcpListener, absl::StrFormat("the %s descriptor is not a TCP socket", which));
  }
  if (Option<int>(fd, SOL_SOCKET, SO_ACCEPTCONN) != 1) {
    return Refuse(Refusal::kNotTcpListener, absl::StrFormat("the %s socket does not listen", which));
  }
  if (Option<uint64_t>(fd, SOL_SOCKET, SO_NETNS_COOKIE) != netns) {
    return Refuse(Refusal::kOtherNamespace,
                  absl::StrFormat("the %s socket is not in the network namespace of sdp-pmd", which));
  }

  ListenerFacts facts;
  facts.family = *family;
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  struct stat status {};
  const auto cookie = Option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE);
  const auto address =
      getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) == 0 ? FromSockaddr(name) : std::nullopt;
  if (!address || address->port == 0 || !cookie || fstat(fd, &status) != 0) {
    return Refuse(Refusal::kInternal, absl::StrFormat("the %s socket does not tell its address", which));
  }
  facts.address = *address;
  facts.cookie = *cookie;
  facts.inode = status.st_ino;
  facts.device = Option<int>(fd, SOL_SOCKET, SO_BINDTOIFINDEX).value_or(0);
  if (*family == AF_INET6) {
    facts.scope_id = reinterpret_cast<const sockaddr_in6*>(&name)->sin6_scope_id;
    facts.v6_only = Option<int>(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 1;
  }
  return facts;
}

// The SDP listener must be open to exactly those to whom the conventional one is.
bool SameExposure(const ListenerFacts& a, const ListenerFacts& b) {
  const Endpoint host_a = HostOf(NormalizeMapped(a.address));
  const Endpoint host_b = HostOf(NormalizeMapped(b.address));
  return host_a == host_b && a.scope_id == b.scope_id && a.device == b.device && a.v6_only == b.v6_only;
}

}  // namespace

absl::StatusOr<uint64_t> OwnNetworkNamespace() {
  const UniqueFd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto cookie = probe ? Option<uint64_t>(probe.get(), SOL_SOCKET, SO_NETNS_COOKIE) : std::nullopt;
  if (cookie) return *cookie;
  return absl::ErrnoToStatus(errno,
                             "cannot tell the network namespace (SO_NETNS_COOKIE, Linux 5.14 or later)");
}

Result<ListenerProof, ProofFailure> ProveListener(std::span<const int> descriptors, uint64_t netns) {
  if (descriptors.size() != kRegisterDescriptors) {
    return Refuse(Refusal::kBadDescriptors,
                  absl::StrFormat("%d descriptors came, not 2", descriptors.size()));
  }
  auto conventional = Inspect(descriptors[0], "conventional", netns);
  if (!conventional) return unexpected(std::move(conventional.error()));
  auto sdp = Inspect(descriptors[1], "SDP", netns);
  if (!sdp) return unexpected(std::move(sdp.error()));
  if (!SameExposure(*conventional, *sdp) || conventional->address.port == sdp->address.port) {
    return Refuse(Refusal::kAddressMismatch,
                  absl::StrFormat("conventional %s, SDP %s: not one address with two ports",
                                  conventional->address.ToString(), sdp->address.ToString()));
  }
  return ListenerProof{{conventional->address, sdp->address, conventional->v6_only}, *conventional};
}

Result<ListenerProof, ProofFailure> ProveRnicListener(std::span<const int> descriptors, const Endpoint& sdp,
                                                      uint64_t netns) {
  if (descriptors.size() != 1) {
    return Refuse(Refusal::kBadDescriptors,
                  absl::StrFormat("%d descriptors came, not 1", descriptors.size()));
  }
  auto conventional = Inspect(descriptors[0], "conventional", netns);
  if (!conventional) return unexpected(std::move(conventional.error()));
  const Endpoint at = NormalizeMapped(conventional->address);
  const Endpoint rnic = NormalizeMapped(sdp);
  const bool usable =
      rnic.port != 0 && rnic.port != at.port && !rnic.IsWildcard() && !rnic.IsMulticastOrBroadcast();
  const bool dual_stack = at.version == IpVersion::kV6 && !conventional->v6_only;
  const bool covered = at.IsWildcard()
                           ? at.version == rnic.version || (dual_stack && rnic.version == IpVersion::kV4)
                           : HostOf(at) == HostOf(rnic);
  if (!usable || !covered) {
    return Refuse(
        Refusal::kAddressMismatch,
        absl::StrFormat("conventional %s, kernel RNIC %s: not one of its addresses with another port",
                        conventional->address.ToString(), sdp.ToString()));
  }
  return ListenerProof{{conventional->address, rnic, conventional->v6_only, /*of_rnic=*/true}, *conventional};
}

}  // namespace sdp::pm
