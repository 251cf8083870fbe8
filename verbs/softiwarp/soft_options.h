// How the embedded RNIC sets up a connection: what MPA's start-up asks of the peer, and the time limits.
#ifndef SDP_VERBS_SOFTIWARP_SOFT_OPTIONS_H_
#define SDP_VERBS_SOFTIWARP_SOFT_OPTIONS_H_

#include <chrono>
#include <cstdint>

#include "core/base/types.h"

namespace sdp::iwarp {

struct SoftOptions {
  bool want_crc = false;      // ask for CRC32c, used if either peer asks for it (RFC 5044, 7.1)
  bool want_markers = false;  // ask the peer to send us markers
  bool peer_to_peer = true;   // connecting side: ask for RFC 6581 peer-to-peer mode with an RTR
  // Connecting side: the connection counts as established only once the responder has shown that it has seen
  // the RTR. A kernel's siw, which sends its first message in the reply, may overlook the RTR until more
  // bytes come.
  bool confirm_rtr = false;
  bool rtr_by_read = false;  // connecting side: offer only a zero-length RDMA Read as RTR (default: Write)
  uint8_t revision = 2;      // 1: no enhanced set-up
  uint32_t max_ulpdu = 0;    // 0: as large as the peer and the link allow
  Duration startup_timeout = std::chrono::seconds(10);  // MPA start-up, each side
  // Connecting side: offer a local link to a peer on this host. Accepting side: take such an offer
  // (local/meeting.h). Only without CRC and markers.
  bool local_link = false;
  const char* why_not_local = "SDP_LINK=tcp";  // if not, for people: a literal
  bool local_link_only = false;                // no other link: the start-up fails
  // Accepting side: how long the kernel has already waited for data on a connection that has brought none yet
  // (TCP_DEFER_ACCEPT).
  Duration deferral{};
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_SOFT_OPTIONS_H_
