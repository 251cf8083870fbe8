#ifndef SDP_TEST_VERBS_BYTES_H_
#define SDP_TEST_VERBS_BYTES_H_

#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "verbs/softiwarp/wire/ddp_header.h"

namespace sdp::iwarp::test {

// "0a 0b" to two bytes; blanks anywhere.
std::vector<std::byte> Hex(std::string_view text);
inline std::vector<std::byte> Copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }
void Append(std::vector<std::byte>* to, Bytes bytes);

// An FPDU without markers, its CRC field zero or right.
std::vector<std::byte> Fpdu(const DdpHeader& header, Bytes payload = {}, bool crc = false);

}  // namespace sdp::iwarp::test

#endif  // SDP_TEST_VERBS_BYTES_H_
