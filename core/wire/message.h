#ifndef SDP_CORE_WIRE_MESSAGE_H_
#define SDP_CORE_WIRE_MESSAGE_H_

#include <cstdint>
#include <string>
#include <variant>

#include "core/base/result.h"
#include "core/base/types.h"
#include "core/wire/bsdh.h"
#include "core/wire/headers.h"

namespace sdp::wire {

// Why bytes are not an SDP message.
enum class WireError : uint8_t {
  kShort,   // fewer bytes than the headers take
  kLength,  // Len is not the message's length, or names payload where none may be
  kReservedMid,
  kExperimentalMid,
  kAdvertisedLength,  // SrcAvail, SinkAvail: Len is 0 or above 2^31, or less than what SrcAvail itself
                      // carries of the buffer
  kReservedMode,      // ModeChange: Mode is not one of the three
  kSuspCommConstant,  // SuspComm: a constant has a wrong value
};
const char* ToString(WireError error);

// The extended header; the alternative is the message's type.
using Body = std::variant<Hello, HelloAck, DisConn, AbortConn, SendSm, RdmaWrCompl, RdmaRdCompl, ModeChange,
                          SrcAvailCancel, SinkAvailCancel, SinkCancelAck, ChRcvBuf, ChRcvBufAck, SuspComm,
                          SuspCommAck, SinkAvail, SrcAvail, Data>;

inline constexpr size_t kMaxHeaderSize = Bsdh::kSize + SinkAvail::kSize;
// The smallest Private Buffer (SDP 10, constraint 4).
inline constexpr uint32_t kMinPrivateBuffer = kMaxHeaderSize + 1;

// The headers of one SDP message. Its payload follows them in the received bytes; nothing is copied.
struct Message {
  Bsdh bsdh{};  // bsdh.mid is the MID of `body`
  Body body = Data{};

  [[nodiscard]] size_t header_size() const;  // bytes of BSDH and extended header
  [[nodiscard]] uint32_t payload_size() const { return bsdh.len - static_cast<uint32_t>(header_size()); }
  friend bool operator==(const Message&, const Message&) = default;
};

// Parses the headers. `prefix` is the message's beginning, at least min(length, kMaxHeaderSize) bytes.
// `length` is the length of the whole message as the LLP delivered it. On success bsdh.len == length, and
// only messages that may have payload have it. The engine judges the values that the draft leaves to a peer
// (versions, zero credits, modes).
Result<Message, WireError> Parse(Bytes prefix, uint64_t length);

// Writes both headers and returns their size. Takes `mid` from the body, and all other fields, including
// `len`, unchanged. `out` has at least message.header_size() bytes.
size_t SerializeTo(const Message& message, MutableBytes out);

// Returns one line for people: "Data bufs=3 mseq=1 ack=0 payload=16".
std::string ToString(const Message& message);
const char* ToString(Mid mid);

}  // namespace sdp::wire

#endif  // SDP_CORE_WIRE_MESSAGE_H_
