// Help for who mistypes a command: what is no command is taken for a filter.
#ifndef SDP_TOOLS_SDPSTAT_MISTYPED_H_
#define SDP_TOOLS_SDPSTAT_MISTYPED_H_

#include <string>

namespace sdp::sdpstat {

// The command that `word` was perhaps meant to be; empty if there is none.
std::string CommandLike(const std::string& word);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_MISTYPED_H_
