// What a passed descriptor proves: that its sender holds a listening TCP socket of this network namespace,
// and where it listens.
#ifndef SDP_PORTMAPPER_DAEMON_LISTENER_PROOF_H_
#define SDP_PORTMAPPER_DAEMON_LISTENER_PROOF_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/result.h"
#include "portmapper/endpoint.h"
#include "portmapper/engine/registration_table.h"
#include "portmapper/local_protocol.h"

namespace sdp::pm {

// A listening socket as the kernel describes it.
struct ListenerFacts {
  int family = 0;         // AF_INET or AF_INET6
  Endpoint address;       // as bound; a v4-mapped address stays one
  uint32_t scope_id = 0;  // of a link-local address
  int device = 0;         // SO_BINDTOIFINDEX, 0 if not bound to a device
  bool v6_only = false;
  uint64_t cookie = 0;  // names the socket for its life, never reused
  uint64_t inode = 0;
};

struct ListenerProof {
  Registration registration;
  ListenerFacts conventional;
};

struct ProofFailure {
  Refusal refusal;
  std::string text;
};

// The daemon's own network namespace, as the kernel names it (Linux 5.14).
[[nodiscard]] absl::StatusOr<uint64_t> OwnNetworkNamespace();

// Looks at the descriptors and leaves them open. They must be two: the conventional listener and the SDP
// listener, both listening TCP sockets in the network namespace `netns`, bound to the same address and device
// and to different ports. Without the namespace check a process could make itself a namespace, where every
// port is free, and pass a listener from there.
[[nodiscard]] Result<ListenerProof, ProofFailure> ProveListener(std::span<const int> descriptors,
                                                                uint64_t netns);

// The same for a listener of a kernel RNIC at `sdp`, which no descriptor can show: the conventional listener
// alone, and `sdp` is an address that one listens on, with another port. That it is this host's is the
// caller's to check. Whoever holds the conventional listener decides where its own clients go, so a false
// `sdp` harms nobody but them.
[[nodiscard]] Result<ListenerProof, ProofFailure> ProveRnicListener(std::span<const int> descriptors,
                                                                    const Endpoint& sdp, uint64_t netns);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_LISTENER_PROOF_H_
