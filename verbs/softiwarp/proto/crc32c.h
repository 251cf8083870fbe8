// CRC32c (Castagnoli) as MPA uses it (RFC 5044, section 4.4; iSCSI's digest). Uses the CPU's instruction if
// it has one.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_CRC32C_H_
#define SDP_VERBS_SOFTIWARP_PROTO_CRC32C_H_

#include <cstdint>

#include "core/base/types.h"

namespace sdp::iwarp {

inline constexpr uint32_t kCrcStart = 0xffffffff;

// Returns the running value over `bytes`, continued from kCrcStart or an earlier result.
[[nodiscard]] uint32_t ExtendCrc32c(uint32_t running, Bytes bytes);
// The portable form, with equal results on every CPU.
[[nodiscard]] uint32_t ExtendCrc32cByTable(uint32_t running, Bytes bytes);
// The four octets on the wire: the complement, least significant octet first.
inline constexpr size_t kCrcSize = 4;
void StoreCrc32c(uint32_t running, std::byte* out);
[[nodiscard]] bool MatchesCrc32c(uint32_t running, const std::byte* field);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_CRC32C_H_
