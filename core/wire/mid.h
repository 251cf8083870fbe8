#ifndef SDP_CORE_WIRE_MID_H_
#define SDP_CORE_WIRE_MID_H_

#include <cstddef>
#include <cstdint>

namespace sdp::wire {

// Every SDP message (SDP 6.1.1, figure 3): name, Message Identifier, bytes of its extended header, whether
// ULP payload may follow.
#define SDP_MID_LIST(X)              \
  X(Hello, 0x00, 16, false)          \
  X(HelloAck, 0x01, 12, false)       \
  X(DisConn, 0x02, 0, false)         \
  X(AbortConn, 0x03, 0, false)       \
  X(SendSm, 0x04, 0, false)          \
  X(RdmaWrCompl, 0x05, 4, false)     \
  X(RdmaRdCompl, 0x06, 4, false)     \
  X(ModeChange, 0x07, 4, false)      \
  X(SrcAvailCancel, 0x08, 0, false)  \
  X(SinkAvailCancel, 0x09, 0, false) \
  X(SinkCancelAck, 0x0a, 0, false)   \
  X(ChRcvBuf, 0x0b, 4, false)        \
  X(ChRcvBufAck, 0x0c, 4, false)     \
  X(SuspComm, 0x0d, 8, false)        \
  X(SuspCommAck, 0x0e, 0, false)     \
  X(SinkAvail, 0xfd, 20, true)       \
  X(SrcAvail, 0xfe, 16, true)        \
  X(Data, 0xff, 0, true)

enum class Mid : uint8_t {
#define SDP_MID_ENUM(name, value, header, payload) k##name = value,
  SDP_MID_LIST(SDP_MID_ENUM)
#undef SDP_MID_ENUM
};

// 0x40 to 0x7f are for experiments; every other value that is not in the list is reserved.
[[nodiscard]] constexpr bool IsExperimental(uint8_t mid) { return mid >= 0x40 && mid <= 0x7f; }

}  // namespace sdp::wire

#endif  // SDP_CORE_WIRE_MID_H_
