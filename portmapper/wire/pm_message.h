// The port mapper's one message format (SDP 7.3, figure 17). 48 bytes, network order.
//
//    0                   1                   2                   3
//    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//   +---+---+-------+---------------+-------------------------------+
//   |Ver|MT |  IPV  |    PmTime     |           Reserved            |   0
//   +---+---+-------+---------------+-------------------------------+
//   |            ApPort             |            CpPort             |   4
//   +-------------------------------+-------------------------------+
//   |                      AssocHandle (64 bits)                    |   8
//   |                      CpIPAddr   (128 bits)                    |  16
//   |                      ApIPAddr   (128 bits)                    |  32
//   +---------------------------------------------------------------+  48
#ifndef SDP_PORTMAPPER_WIRE_PM_MESSAGE_H_
#define SDP_PORTMAPPER_WIRE_PM_MESSAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/types.h"
#include "portmapper/endpoint.h"

namespace sdp::pm {

inline constexpr uint16_t kPmUdpPort = 3935;  // SDP 16
inline constexpr size_t kPmMessageSize = 48;

using Datagram = std::array<std::byte, kPmMessageSize>;

// Tells the transactions in flight of one client apart (SDP 7.3.1.8).
using AssocHandle = StrongInt<struct AssocHandleTag, uint64_t>;

// How long an answer may be cached, in the wire's coding (SDP 7.3.1.4).
using PmTime = StrongInt<struct PmTimeTag, uint8_t>;
inline constexpr PmTime kPmTimeDoNotCache{0};
inline constexpr PmTime kPmTimeForever{255};
// The duration of kPmTimeForever.
inline constexpr Duration kForever = Duration::max();

// 0 for "do not cache", PmTime * 250 ms up to 127, PmTime * 1 s up to 254, kForever for 255.
[[nodiscard]] Duration ToDuration(PmTime time);

// The MT field (SDP 7.3.1.2).
enum class MessageType : uint8_t { kReq = 0, kAccept = 1, kAck = 2, kDeny = 3 };

// A parsed message. The IP version is that of both endpoints, which agree.
struct PmMessage {
  MessageType type = MessageType::kReq;
  PmTime pm_time{};
  AssocHandle handle{};
  Endpoint cp;  // CpIPAddr, CpPort: the connecting peer
  Endpoint ap;  // ApIPAddr, ApPort: the accepting peer, its conventional or its SDP address as the type says

  friend bool operator==(const PmMessage&, const PmMessage&) = default;
};

enum class PmWireError : uint8_t {
  kWrongLength,   // not exactly 48 bytes
  kBadVersion,    // Ver is not 0
  kBadIpVersion,  // IPV is neither 4 nor 6
};
[[nodiscard]] std::string_view ToString(PmWireError error);
[[nodiscard]] std::string_view ToString(MessageType type);

// Reserved bits are not checked, and the 96 unused bits of IPv4 addresses are ignored (SDP 7.3.1.3, 7.3.1.5).
// Which fields mean something in which message is the state machines' affair.
[[nodiscard]] Result<PmMessage, PmWireError> Parse(Bytes datagram);

// Both endpoints must have the same IP version (our own mistake otherwise).
[[nodiscard]] Datagram Serialize(const PmMessage& message);

// "PMReq 0123456789abcdef 10.0.0.1:4000 -> 10.0.0.2:80", with the PmTime for a PMAccept.
[[nodiscard]] std::string ToString(const PmMessage& message);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_WIRE_PM_MESSAGE_H_
