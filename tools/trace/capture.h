// Messages as a capture in pcap's format, for Wireshark's iWARP dissectors. Pure.
//
// It is made up from what the process noted, whatever its RNIC: IP, TCP and MPA without CRC and markers, with zeros for
// payload (dissectors read no packet that is cut short). What the RNIC does by
// itself is not in it: the peer's RDMA Reads of our memory and its RDMA Writes are known by RdmaRdCompl and RdmaWrCompl.
#ifndef SDP_TOOLS_TRACE_CAPTURE_H_
#define SDP_TOOLS_TRACE_CAPTURE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "preload/stats_layout.h"
#include "tools/trace/trace_image.h"
#include "verbs/softiwarp/wire/ddp_header.h"

namespace sdp::trace {

class Capture {
 public:
  // What the file starts with.
  static std::string FileHeader();

  // A connection that is there already.
  void Introduce(const stats::ConnectionRecord& record);
  // The next message, as packets; those that open a connection come with its first. Messages of connections that were never
  // named are left out.
  std::string Add(const NotedMessage& message);

 private:
  struct PendingRead {
    stats::RdmaNote work;
    uint32_t length = 0;
  };
  // Ends by direction of what they send: kIn, the peer, and kOut, this process.
  struct Connection {
    stats::Address address[2];
    bool connecting = true;  // this process did
    bool started = false;
    std::vector<std::byte> private_data[2];
    uint32_t sequence[2] = {1000, 2000};
    uint32_t send_msn[2] = {0, 0};
    uint32_t read_msn = 0;
    std::deque<PendingRead> reads;
  };

  void Start(Connection& connection);
  void AddSend(Connection& connection, const stats::MessageNote& note);
  void AddTagged(Connection& connection, int from, uint8_t opcode, STag stag, uint64_t to, uint32_t length);
  void AddReadRequest(Connection& connection, const stats::MessageNote& note);
  // One FPDU; its payload of `length` bytes begins with `known`.
  void AddFpdu(Connection& connection, int from, const iwarp::DdpHeader& header, Bytes known, uint32_t length);
  void AddPacket(Connection& connection, int from, uint8_t flags, Bytes payload);

  std::map<uint32_t, Connection> connections_;
  uint64_t time_ns_ = 0;
  std::string out_;
};

}  // namespace sdp::trace

#endif  // SDP_TOOLS_TRACE_CAPTURE_H_
