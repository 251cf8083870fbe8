// A directory of its own for each test, and records to publish.
#ifndef SDP_TEST_TOOLS_STATS_FIXTURE_H_
#define SDP_TEST_TOOLS_STATS_FIXTURE_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "preload/stats_segment.h"

namespace sdp::stats {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/sdp-stats-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline Address Ipv4(uint8_t last, uint16_t port) {
  Address out;
  out.family = 4;
  out.port = port;
  out.ip[0] = 10;
  out.ip[3] = last;
  return out;
}

inline ConnectionRecord EstablishedConnection() {
  ConnectionRecord record;
  record.kind = Kind::kConnection;
  record.role = Role::kConnecting;
  record.fd = 7;
  record.local = Ipv4(1, 40000);
  record.peer = Ipv4(2, 80);
  record.sdp_local = Ipv4(1, 50001);
  record.sdp_peer = Ipv4(2, 50002);
  record.counters.state = State::kEstablished;
  record.counters.ever_established = 1;
  record.counters.send_credits = 22;
  record.counters.posted_receives = 24;
  record.counters.bytes_in[kBcopy] = 100;
  record.counters.bytes_out[kReadZcopy] = 2048;
  SetText(record.rnic, "soft");
  SetText(record.link, "tcp");
  return record;
}

}  // namespace sdp::stats

#endif  // SDP_TEST_TOOLS_STATS_FIXTURE_H_
