#include "verbs/softiwarp/wire/opcode_table.h"

#include <iterator>

namespace sdp::iwarp {
namespace {

constexpr OpcodeInfo kOpcodes[] = {
    {RdmapOpcode::kWrite, "RDMA Write", true, 0, false, false},
    {RdmapOpcode::kReadRequest, "RDMA Read Request", false, kReadRequestQueue, false, false},
    {RdmapOpcode::kReadResponse, "RDMA Read Response", true, 0, false, false},
    {RdmapOpcode::kSend, "Send", false, kSendQueue, false, false},
    {RdmapOpcode::kSendInvalidate, "Send with Invalidate", false, kSendQueue, true, false},
    {RdmapOpcode::kSendSe, "Send with SE", false, kSendQueue, false, true},
    {RdmapOpcode::kSendSeInvalidate, "Send with SE and Invalidate", false, kSendQueue, true, true},
    {RdmapOpcode::kTerminate, "Terminate", false, kTerminateQueue, false, false},
};

}  // namespace

const OpcodeInfo* FindOpcode(uint8_t value) {
  return value < std::size(kOpcodes) ? &kOpcodes[value] : nullptr;
}

const OpcodeInfo& InfoOf(RdmapOpcode opcode) { return kOpcodes[static_cast<uint8_t>(opcode)]; }

RdmapOpcode SendOpcode(bool solicited, bool invalidate) {
  if (solicited) return invalidate ? RdmapOpcode::kSendSeInvalidate : RdmapOpcode::kSendSe;
  return invalidate ? RdmapOpcode::kSendInvalidate : RdmapOpcode::kSend;
}

}  // namespace sdp::iwarp
