// ss's filter expressions, for rows of sdpstat.
//
//   EXPRESSION := TERM { [and] TERM } | EXPRESSION or EXPRESSION | not TERM | ( EXPRESSION )
//   TERM       := state NAME | exclude NAME | {sport|dport} [OP] [:]PORT | {src|dst} ADDRESS[/LENGTH][:PORT]
//   | process NAME|PID | reason CODE OP         := = == eq != ne < lt <= le > gt >= ge
#ifndef SDP_TOOLS_SDPSTAT_FILTER_H_
#define SDP_TOOLS_SDPSTAT_FILTER_H_

#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/stats/stats_image.h"

namespace sdp::sdpstat {

using Filter = std::function<bool(const stats::ProcessStats&, const stats::ConnectionRecord&)>;

// `words`: as the shell split them, or as one text. No word: everything matches. The error is a sentence that
// says what was expected.
Result<Filter, std::string> ParseFilter(const std::vector<std::string>& words);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_FILTER_H_
