#ifndef SDP_CORE_WIRE_BSDH_H_
#define SDP_CORE_WIRE_BSDH_H_

#include <cstdint>
#include <span>

#include "core/base/types.h"
#include "core/wire/mid.h"

namespace sdp::wire {

// The draft numbers the bits of Flags without an order. This library numbers them as the draft numbers
// MID[7-0]: bit 0 is the least significant.
inline constexpr uint8_t kOobPres = 1 << 0;  // the payload's last byte is Out-Of-Band data
inline constexpr uint8_t kOobPend = 1 << 1;  // the ULP sent Out-Of-Band data, which will come
// The Mode Slave prefers Pipelined Mode. The flag has a meaning only in RdmaRdCompl and RdmaWrCompl.
inline constexpr uint8_t kReqPipe = 1 << 2;

// Base Sockets Direct Header (SDP 6.1, figure 2), the start of every message.
//
//   0                   1                   2                   3
//   0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//  +-------------------------------+---------------+---------------+
//  |             Bufs              |     Flags     |      MID      |
//  +-------------------------------+---------------+---------------+
//  |                              Len                              |
//  +---------------------------------------------------------------+
//  |                             MSeq                              |
//  +---------------------------------------------------------------+
//  |                            MSeqAck                            |
//  +---------------------------------------------------------------+
struct Bsdh {
  static constexpr size_t kSize = 16;

  uint16_t bufs = 0;  // receive Private Buffers posted by the sender (6.1.3)
  uint8_t flags = 0;
  Mid mid = Mid::kData;
  uint32_t len = 0;  // bytes of the whole message: this header, the extended one, the payload (6.1.4)
  MSeq mseq{};
  MSeq mseq_ack{};

  // Parses the header. Does not check `mid`, which may be a value without a name.
  static Bsdh Parse(std::span<const std::byte, kSize> bytes);
  void SerializeTo(std::span<std::byte, kSize> out) const;
  friend bool operator==(const Bsdh&, const Bsdh&) = default;
};

}  // namespace sdp::wire

#endif  // SDP_CORE_WIRE_BSDH_H_
