// Messages as a capture in pcap's format, for Wireshark's iWARP dissectors. Pure.
//
// It is made up from what the process noted, whatever its RNIC: IP, TCP and MPA without CRC and markers, with
// zeros for payload (dissectors read no packet that is cut short). What the RNIC does by itself is not in it:
// the peer's RDMA Reads of our memory and its RDMA Writes are known by RdmaRdCompl and RdmaWrCompl.
#ifndef SDP_TOOLS_TRACE_CAPTURE_H_
#define SDP_TOOLS_TRACE_CAPTURE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
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
  // The next message, as packets; those that open a connection come with its first. Messages of connections
  // that were never named are left out.
  std::string Add(const NotedMessage& message);

 private:
  struct PendingRead {
    stats::RdmaNote work;
    uint32_t length = 0;
  };
  struct End {
    stats::Address address;
    std::vector<std::byte> private_data;
    uint32_t sequence = 0;
    uint32_t send_msn = 0;
    uint32_t read_msn = 0;
    std::deque<PendingRead> reads;
  };
  // What is on the wire between two ends, of which the first connected.
  struct Stream {
    End end[2];
    bool started = false;
  };
  // A stream as this process has it. Of one whose both ends are the process's, the Sends are taken from what
  // the end noted that was named first, since each end notes them all; RDMA work each end notes for itself.
  struct Connection {
    std::shared_ptr<Stream> stream;
    int us = 0;
    bool second = false;
  };

  void Name(uint32_t number, const stats::Address& us, const stats::Address& peer, bool connecting);
  void Start(Stream& stream);
  void AddSend(Stream& stream, int from, const stats::MessageNote& note);
  void AddTagged(Stream& stream, int from, uint8_t opcode, STag stag, uint64_t to, uint32_t length);
  void AddReadRequest(Stream& stream, int from, const stats::MessageNote& note);
  void AddReadResponse(Stream& stream, int reader);
  // One FPDU; its payload of `length` bytes begins with `known`.
  void AddFpdu(Stream& stream, int from, const iwarp::DdpHeader& header, Bytes known, uint32_t length);
  void AddPacket(Stream& stream, int from, uint8_t flags, Bytes payload);

  std::map<uint32_t, Connection> connections_;
  uint64_t time_ns_ = 0;
  std::string out_;
};

}  // namespace sdp::trace

#endif  // SDP_TOOLS_TRACE_CAPTURE_H_
