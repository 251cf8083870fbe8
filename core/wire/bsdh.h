#ifndef SDP_CORE_WIRE_BSDH_H_
#define SDP_CORE_WIRE_BSDH_H_

#include <cstdint>
#include <span>

#include "core/base/types.h"
#include "core/wire/mid.h"

namespace sdp::wire {

// The draft numbers the bits of Flags without saying from which end; we count as it counts MID[7-0]: bit 0 is
// the least significant.
inline constexpr uint8_t kOobPres = 1 << 0;  // the payload's last byte is Out-Of-Band data
inline constexpr uint8_t kOobPend = 1 << 1;  // Out-Of-Band data was sent by the ULP and will come
inline constexpr uint8_t kReqPipe =
    1 << 2;  // the Mode Slave would like Pipelined Mode; meant only in RdmaRdCompl and RdmaWrCompl

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
  uint32_t len = 0;  // of the whole message, bytes: this header, the extended one, the payload (6.1.4)
  MSeq mseq{};
  MSeq mseq_ack{};

  // Does not check `mid`: it may be a value without a name.
  static Bsdh Parse(std::span<const std::byte, kSize> bytes);
  void SerializeTo(std::span<std::byte, kSize> out) const;
  friend bool operator==(const Bsdh&, const Bsdh&) = default;
};

}  // namespace sdp::wire

#endif  // SDP_CORE_WIRE_BSDH_H_
