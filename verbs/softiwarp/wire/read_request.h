// The RDMA Read Request Header (RFC 5040, section 4.4), which is the whole message after its DDP header.
//
//    | SinkSTag (32) | SinkTO (64) | RDMARDSZ (32) | SrcSTag (32) | SrcTO (64) |
#ifndef SDP_VERBS_SOFTIWARP_WIRE_READ_REQUEST_H_
#define SDP_VERBS_SOFTIWARP_WIRE_READ_REQUEST_H_

#include <cstdint>
#include <span>

#include "core/base/types.h"

namespace sdp::iwarp {

inline constexpr size_t kReadRequestSize = 28;

struct ReadRequest {
  STag sink_stag{};
  uint64_t sink_to = 0;
  uint32_t size = 0;
  STag source_stag{};
  uint64_t source_to = 0;
  friend bool operator==(const ReadRequest&, const ReadRequest&) = default;
};

[[nodiscard]] ReadRequest ParseReadRequest(std::span<const std::byte, kReadRequestSize> bytes);
void SerializeReadRequest(const ReadRequest& request, std::span<std::byte, kReadRequestSize> out);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_WIRE_READ_REQUEST_H_
