// sdp-run --explain: which rule matches, and what would happen, by trying it.
#ifndef SDP_TOOLS_SDP_RUN_EXPLAIN_H_
#define SDP_TOOLS_SDP_RUN_EXPLAIN_H_

#include <string>
#include <vector>

namespace sdp::run {

// Prints it. `target`: HOST:PORT, [IPv6]:PORT. `command`: the program that would connect, whose rules count,
// and which need not be on this host; empty: any. Exit status: 0 SDP, 1 TCP or no connection, 125 the target
// makes no sense.
int Explain(const std::string& target, const std::vector<std::string>& command, const std::string& library);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_EXPLAIN_H_
