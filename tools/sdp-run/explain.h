// sdp-run --explain: which rule matches, and what would happen, by trying it.
#ifndef SDP_TOOLS_SDP_RUN_EXPLAIN_H_
#define SDP_TOOLS_SDP_RUN_EXPLAIN_H_

#include <string>

namespace sdp::run {

// Prints it. `target`: HOST:PORT, [IPv6]:PORT. `program`: whose rules. Exit status: 0 SDP, 1 TCP or no
// connection, 125 the target makes no sense.
int Explain(const std::string& target, const std::string& program, const std::string& library);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_EXPLAIN_H_
