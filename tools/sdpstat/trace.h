// sdpstat trace: the SDP messages of a process, as a ladder or as a capture.
#ifndef SDP_TOOLS_SDPSTAT_TRACE_H_
#define SDP_TOOLS_SDPSTAT_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sdp::sdpstat {

struct TraceOptions {
  std::string process;    // a process id, or a program's name
  std::optional<int> fd;  // only this connection
  std::string pcap;       // write a capture there instead of drawing; "-": standard output
  uint64_t count = 0;     // stop after so many messages; 0: do not
  double seconds = 0;     // or after so long
  bool last = false;      // only what each connection noted last
  std::vector<std::string> directories;
};

// The command: until it is interrupted, the process ends, or its one connection does. Exit status: 0; 1 if
// there is nothing to trace, or it cannot be; 2 there is no such process.
int Trace(const TraceOptions& options);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_TRACE_H_
