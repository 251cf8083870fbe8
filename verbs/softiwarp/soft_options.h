// How the embedded RNIC sets up a connection: what MPA's start-up asks of the peer, and the time limits.
#ifndef SDP_VERBS_SOFTIWARP_SOFT_OPTIONS_H_
#define SDP_VERBS_SOFTIWARP_SOFT_OPTIONS_H_

#include <chrono>
#include <cstdint>

#include "core/base/types.h"

namespace sdp::iwarp {

// kConfirmed: the connection counts as established only once the responder has shown that it has seen the
// RTR. A kernel's siw may overlook the RTR until more bytes come. kNone: both ends know that there is no RTR.
// The responder may send right behind its Reply.
enum class RtrWay : uint8_t { kAtOnce, kConfirmed, kNone };

struct SoftOptions {
  bool want_crc = false;      // ask for CRC32c, used if either peer asks for it (RFC 5044, 7.1)
  bool want_markers = false;  // ask the peer to send us markers
  bool peer_to_peer = true;   // connecting side: ask for RFC 6581 peer-to-peer mode with an RTR
  // What becomes of the RTR, by the private data of the MPA Reply; nullptr: kAtOnce. The accepting side may
  // give an answer that says kNone where Connector::may_open().
  RtrWay (*rtr_way)(Bytes reply) = nullptr;
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
