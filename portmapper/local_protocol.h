// How a listening process registers with the sdp-pmd of its host: a SOCK_SEQPACKET unix socket, one
// connection per listener, a greeting and a request, each with its reply. The registration lasts while the
// connection is open.
//
//   client -> daemon:  16 bytes, the greeting. A daemon that answers it runs, and takes the request at once.
//   Descriptors in the queue of a daemon that stands still would keep the client's ports bound.
//     0      4        6        8                16
//     +------+--------+--------+----------------+
//     | SDPL |   3    | zero   | zero           |
//     +------+--------+--------+----------------+
//
//   client -> daemon:  16 bytes, and with them (SCM_RIGHTS) two descriptors: the conventional listener, the
//   SDP listener
//     0      4        6        8                16
//     +------+--------+--------+----------------+
//     | SDPL |version | zero   | zero           |
//     +------+--------+--------+----------------+
//
//   or, for a listener of a kernel RNIC, which has no descriptor:  28 bytes, and with them the conventional
//   listener alone; the address is where the RNIC listens, one of the conventional listener's
//     0      4        6        8                       24     26     28
//     +------+--------+--------+-----------------------+------+------+
//     | SDPL |   2    | 4 or 6 | address               | port | zero |
//     +------+--------+--------+-----------------------+------+------+
//
//   daemon -> client:  8 bytes and at most 120 bytes of text, not terminated
//     0      4        6        8
//     +------+--------+--------+-----------
//     | SDPL |version |refusal | text ...
//     +------+--------+--------+-----------
//
// A request may come without a greeting. A daemon that knows no greeting refuses it with kBadVersion, and the
// client sends its request over a new connection. Numbers are big-endian. The descriptors are the proof: only
// who holds a listener can pass it. The daemon looks at them and closes them; it never keeps somebody's port
// open.
#ifndef SDP_PORTMAPPER_LOCAL_PROTOCOL_H_
#define SDP_PORTMAPPER_LOCAL_PROTOCOL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/types.h"
#include "portmapper/endpoint.h"

namespace sdp::pm {

inline constexpr uint16_t kLocalProtocolVersion = 1;
inline constexpr size_t kRegisterRequestSize = 16;
inline constexpr uint16_t kRnicRequestVersion = 2;
inline constexpr size_t kRnicRequestSize = 28;
inline constexpr uint16_t kGreetingVersion = 3;
inline constexpr size_t kReplyHeaderSize = 8;
inline constexpr size_t kMaxReplyText = 120;
inline constexpr size_t kMaxReplySize = kReplyHeaderSize + kMaxReplyText;
inline constexpr size_t kRegisterDescriptors = 2;

// Why the daemon does not register. The values are the wire's.
enum class Refusal : uint16_t {
  kNone = 0,  // registered; to a greeting: the daemon runs
  kBadMessage = 1,
  kBadVersion = 2,
  kBadDescriptors = 3,  // not as many as the request needs
  kNotTcpListener = 4,  // not a listening TCP socket
  kAddressMismatch =
      5,  // the SDP listener has another address than the conventional one, or none of this host's
  kOtherNamespace = 6,  // the listener is not in the daemon's network namespace
  kTooMany = 7,         // this user, or all together, hold too many registrations
  kInternal = 8,        // the daemon could not look (no resources)
};
inline constexpr uint16_t kMaxRefusal = 8;
[[nodiscard]] std::string_view ToString(Refusal refusal);

enum class LocalError : uint8_t { kWrongLength, kBadMagic, kBadVersion, kBadRefusal, kBadAddress };

struct RegisterRequest {
  uint16_t version = kLocalProtocolVersion;
};
// A daemon that does not know it refuses it with kBadMessage.
struct RnicRequest {
  Endpoint sdp;
};
struct Greeting {};
struct RegisterReply {
  uint16_t version = kLocalProtocolVersion;
  Refusal refusal = Refusal::kNone;
  std::string text;  // cut at kMaxReplyText when sent; bytes that are not printable ASCII become '?'
};

// Exactly kRegisterRequestSize bytes; the zero fields are not checked.
[[nodiscard]] Result<RegisterRequest, LocalError> ParseRegisterRequest(Bytes message);
// Exactly kRnicRequestSize bytes. Whether anybody can listen there is not checked.
[[nodiscard]] Result<RnicRequest, LocalError> ParseRnicRequest(Bytes message);
// Exactly kRegisterRequestSize bytes; the zero fields are not checked.
[[nodiscard]] Result<Greeting, LocalError> ParseGreeting(Bytes message);
[[nodiscard]] Result<RegisterReply, LocalError> ParseRegisterReply(Bytes message);

[[nodiscard]] std::array<std::byte, kRegisterRequestSize> Serialize(const RegisterRequest& request);
[[nodiscard]] std::array<std::byte, kRegisterRequestSize> Serialize(Greeting greeting);
[[nodiscard]] std::array<std::byte, kRnicRequestSize> Serialize(const RnicRequest& request);
// Returns how much of `out` is used.
[[nodiscard]] size_t Serialize(const RegisterReply& reply, std::array<std::byte, kMaxReplySize>& out);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_LOCAL_PROTOCOL_H_
