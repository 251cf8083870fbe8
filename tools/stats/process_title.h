// The title that many servers write over their arguments, for ps to show: "nginx: worker process".
#ifndef SDP_TOOLS_STATS_PROCESS_TITLE_H_
#define SDP_TOOLS_STATS_PROCESS_TITLE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sdp::stats {

// What the title adds to the name: "worker process". Without paths and options, printable, and short. Empty:
// the process has given itself no title. `arguments`: the text of /proc/PID/cmdline.
std::string TitleIn(std::string_view arguments, std::string_view program);

// The title of a running process.
std::string ProcessTitle(uint32_t pid, std::string_view program);

}  // namespace sdp::stats

#endif  // SDP_TOOLS_STATS_PROCESS_TITLE_H_
