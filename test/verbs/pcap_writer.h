// Writes what two ends say to each other over a stream as a capture of TCP segments, for dissectors.
#ifndef SDP_TEST_VERBS_PCAP_WRITER_H_
#define SDP_TEST_VERBS_PCAP_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace sdp::iwarp::test {

// Ethernet, IPv4 and TCP headers are made up: 10.0.0.1:40001 (end 0, which connects) and 10.0.0.2:50001 (end
// 1). Every segment is in order and acknowledged.
class PcapWriter {
 public:
  PcapWriter();
  // Bytes that `end` sent, at most 60,000 in a segment.
  void Sent(int end, Bytes bytes);
  // Writes the file; false when the file cannot be written.
  [[nodiscard]] bool Save(const std::string& path) const;

 private:
  void Segment(int end, uint8_t flags, Bytes bytes);

  std::vector<std::byte> file_;
  uint32_t next_[2] = {1000, 2000};
  uint32_t clock_ = 0;
};

}  // namespace sdp::iwarp::test

#endif  // SDP_TEST_VERBS_PCAP_WRITER_H_
