#include "test/verbs/bytes.h"

#include <array>

#include "core/base/byte_order.h"
#include "verbs/softiwarp/proto/crc32c.h"
#include "verbs/softiwarp/proto/fpdu_reader.h"

namespace sdp::iwarp::test {

std::vector<std::byte> Hex(std::string_view text) {
  std::vector<std::byte> bytes;
  int high = -1;
  for (const char c : text) {
    if (c == ' ') continue;
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<std::byte>(high << 4 | digit));
      high = -1;
    }
  }
  return bytes;
}

void Append(std::vector<std::byte>* to, Bytes bytes) { to->insert(to->end(), bytes.begin(), bytes.end()); }

std::vector<std::byte> Fpdu(const DdpHeader& header, Bytes payload, bool crc) {
  std::array<std::byte, kMpaLengthSize + kUntaggedHeaderSize> head;
  const size_t size = SerializeDdpHeader(header, head.data() + kMpaLengthSize);
  const auto ulpdu = static_cast<uint16_t>(size + payload.size());
  StoreBe<uint16_t>(head.data(), ulpdu);
  std::vector<std::byte> out = Copy(Bytes(head).first(kMpaLengthSize + size));
  Append(&out, payload);
  out.resize(out.size() + PadSize(ulpdu));
  std::array<std::byte, kCrcSize> field{};
  if (crc) StoreCrc32c(ExtendCrc32c(kCrcStart, out), field.data());
  Append(&out, field);
  return out;
}

}  // namespace sdp::iwarp::test
