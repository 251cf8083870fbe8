// What the kernel says of TCP sockets: those a process holds, and how the TCP connections under SDP fare.
#ifndef SDP_TOOLS_KERNEL_TCP_SOCKETS_H_
#define SDP_TOOLS_KERNEL_TCP_SOCKETS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "preload/stats_layout.h"

namespace sdp::kernel {

struct TcpSocket {
  int fd = -1;  // the lowest, if it has several
  stats::Address local;
  stats::Address peer;  // family 0 for a listener
  std::string state;    // as ss names it: "ESTAB", "LISTEN", ...
  [[nodiscard]] bool listening() const { return state == "LISTEN"; }
};

// The TCP sockets that the process holds, by descriptor, from its own network namespace. *readable is false
// if we may not look at its descriptors. IPv4-mapped addresses come as the library publishes them: as IPv6.
std::vector<TcpSocket> TcpSocketsOf(uint32_t pid, bool* readable);

struct RawTcpSocket {
  TcpSocket socket;
  uint64_t inode = 0;
};
// The lines of /proc/PID/net/tcp or tcp6. Lines that make no sense are left out.
std::vector<RawTcpSocket> ParseProcNetTcp(std::string_view text);

// Of the TCP connection that carries an SDP connection.
struct LinkFacts {
  uint32_t rtt_us = 0;
  uint32_t rtt_variance_us = 0;
  uint64_t retransmissions = 0;  // segments, since it was opened
  uint32_t congestion_window = 0;
  uint64_t delivery_rate = 0;  // bytes/s
};

// By local and remote address and port, of this network namespace. Empty where the kernel does not tell
// (sock_diag).
class LinkTable {
 public:
  static LinkTable Read();
  // Null: unknown.
  [[nodiscard]] const LinkFacts* Find(const stats::Address& local, const stats::Address& peer) const;

 private:
  friend class LinkTableReader;
  std::map<std::pair<std::string, std::string>, LinkFacts> links_;
};

}  // namespace sdp::kernel

#endif  // SDP_TOOLS_KERNEL_TCP_SOCKETS_H_
