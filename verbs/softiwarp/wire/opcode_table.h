// The RDMAP opcodes and what each one demands of its DDP segments (RFC 5040, section 4.1 and 4.2).
#ifndef SDP_VERBS_SOFTIWARP_WIRE_OPCODE_TABLE_H_
#define SDP_VERBS_SOFTIWARP_WIRE_OPCODE_TABLE_H_

#include <cstdint>

namespace sdp::iwarp {

enum class RdmapOpcode : uint8_t {
  kWrite = 0,
  kReadRequest = 1,
  kReadResponse = 2,
  kSend = 3,
  kSendInvalidate = 4,
  kSendSe = 5,
  kSendSeInvalidate = 6,
  kTerminate = 7,
};

// DDP queues of the untagged model (RFC 5040, section 3).
inline constexpr uint32_t kSendQueue = 0;
inline constexpr uint32_t kReadRequestQueue = 1;
inline constexpr uint32_t kTerminateQueue = 2;
inline constexpr uint32_t kQueueCount = 3;

struct OpcodeInfo {
  RdmapOpcode opcode;
  const char* name;
  bool tagged;
  uint8_t queue;  // untagged only
  bool invalidates;
  bool solicited;
};

// Returns nullptr for the reserved values 8 to 15.
const OpcodeInfo* FindOpcode(uint8_t value);
const OpcodeInfo& InfoOf(RdmapOpcode opcode);
RdmapOpcode SendOpcode(bool solicited, bool invalidate);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_WIRE_OPCODE_TABLE_H_
