// One connection made by a preloaded process, for those who want to know what would happen: rules, port
// mapper, RNIC and handshake are those of a program, because they are used as a program uses them.
#ifndef SDP_TOOLS_PROBE_PROBE_H_
#define SDP_TOOLS_PROBE_PROBE_H_

#include <optional>
#include <string>

#include "preload/stats_layout.h"

namespace sdp::probe {

struct Request {
  std::string program;  // what rules are matched with
  std::string library;  // path of libsdp.so
  std::string host;     // empty: to a listener of its own on 127.0.0.1
  std::string port;
};

struct Result {
  std::string error;  // the probe itself failed: a sentence
  bool connected = false;
  std::string connect_error;  // why not
  double milliseconds = 0;
  // What the process published of the connection: kConnection, or kFallback with the reason; empty if the
  // library left it alone.
  std::optional<stats::ConnectionRecord> record;
  std::string log;  // the library's lines, SDP_LOG=info
};

// Runs this executable again, as request.program and with the library preloaded. Gives up after 15 seconds:
// then it has not connected.
Result Probe(const Request& request);

// The other side: an executable that calls Probe begins its main with this. True: it was the probe, and
// *status is its exit status.
bool ServeProbe(int argc, char** argv, int* status);

}  // namespace sdp::probe

#endif  // SDP_TOOLS_PROBE_PROBE_H_
