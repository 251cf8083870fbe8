#include "test/verbs/pcap_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/base/byte_order.h"
#include "test/verbs/bytes.h"

namespace sdp::iwarp::test {
namespace {

constexpr size_t kMaxSegment = 60000;
constexpr uint8_t kSyn = 0x02, kPsh = 0x08, kAck = 0x10;

template <typename T>
void Put(std::vector<std::byte>* out, T value) {
  std::array<std::byte, sizeof(T)> bytes;
  StoreBe<T>(bytes.data(), value);
  Append(out, bytes);
}

}  // namespace

PcapWriter::PcapWriter() {
  // A pcap file in network byte order, version 2.4, Ethernet.
  file_ = Hex("a1b2c3d4 0002 0004 00000000 00000000 00040000 00000001");
  Segment(0, kSyn, {});
  ++next_[0];
  Segment(1, kSyn | kAck, {});
  ++next_[1];
  Segment(0, kAck, {});
}

void PcapWriter::Sent(int end, Bytes bytes) {
  while (!bytes.empty()) {
    const Bytes segment = bytes.first(std::min(bytes.size(), kMaxSegment));
    Segment(end, kPsh | kAck, segment);
    next_[end] += static_cast<uint32_t>(segment.size());
    bytes = bytes.subspan(segment.size());
  }
}

bool PcapWriter::Save(const std::string& path) const {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(file_.data(), 1, file_.size(), file) == file_.size();
  return std::fclose(file) == 0 && written;
}

void PcapWriter::Segment(int end, uint8_t flags, Bytes bytes) {
  const auto size = static_cast<uint32_t>(14 + 20 + 20 + bytes.size());
  Put<uint32_t>(&file_, 1);
  Put<uint32_t>(&file_, clock_ += 10);
  Put<uint32_t>(&file_, size);
  Put<uint32_t>(&file_, size);
  Append(&file_, Hex("020000000002 020000000001 0800"));
  Append(&file_, Hex("4500"));
  Put<uint16_t>(&file_, static_cast<uint16_t>(size - 14));
  Append(&file_, Hex("0000 4000 40 06 0000"));
  Append(&file_, end == 0 ? Hex("0a000001 0a000002 9c41 c351") : Hex("0a000002 0a000001 c351 9c41"));
  Put<uint32_t>(&file_, next_[end]);
  Put<uint32_t>(&file_, (flags & kAck) != 0 ? next_[1 - end] : 0);
  Put<uint8_t>(&file_, 0x50);
  Put<uint8_t>(&file_, flags);
  Append(&file_, Hex("ffff 0000 0000"));
  Append(&file_, bytes);
}

}  // namespace sdp::iwarp::test
