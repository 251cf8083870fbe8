// How an accepting host tells a central PMSP what it serves: the private mechanism that SDP 7.2 leaves room
// for. The datagrams have the size and the outline of the port mapper's own, with 1 in the version field, so
// that a port mapper that knows nothing of them discards them (SDP 7.3.1.1), and no answer is longer than its
// question.
//
//    0                   1                   2                   3
//    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//   +---+---+-------+---------------+-------------------------------+
//   |  1| MT|  IPV  |   Lifetime    |            Weight             |   0
//   +---+---+-------+---------------+-------------------------------+
//   |           SDP port            |       Conventional port       |   4
//   +-------------------------------+-------------------------------+
//   |                        Cookie (64 bits)                       |   8
//   |                   Conventional address (128 bits)             |  16
//   |                      SDP address (128 bits)                   |  32
//   +---------------------------------------------------------------+  48
//
//   host -> PMSP:  Announce, again and again while the listener is there; Lifetime 0 takes it back
//   PMSP -> host:  Challenge, with the cookie that belongs to the host's address, if the one that came does
//   not;
//                  Refuse, if the host may not say that. An Announce that is accepted has no answer.
#ifndef SDP_PORTMAPPER_WIRE_ANNOUNCEMENT_H_
#define SDP_PORTMAPPER_WIRE_ANNOUNCEMENT_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/types.h"
#include "portmapper/endpoint.h"
#include "portmapper/wire/pm_message.h"

namespace sdp::pm {

enum class AnnouncementType : uint8_t { kAnnounce = 0, kChallenge = 1, kRefuse = 3 };

struct Announcement {
  AnnouncementType type = AnnouncementType::kAnnounce;
  uint8_t lifetime = 0;  // seconds; 0 takes the announcement back
  uint16_t weight =
      1;  // share of the clients beside others of the same conventional address; 0: only in need
  uint64_t cookie = 0;
  Endpoint conventional;
  Endpoint sdp;  // of the same IP version

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// Empty for what is no announcement: another length, version, type or IP version, a port 0, an address nobody
// can connect to.
[[nodiscard]] std::optional<Announcement> ParseAnnouncement(Bytes datagram);

// Both endpoints must have the same IP version (our own mistake otherwise).
[[nodiscard]] Datagram Serialize(const Announcement& announcement);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_WIRE_ANNOUNCEMENT_H_
