// The rule, or setting, of a libsdp.conf that leaves every socket of a program to TCP. Then the library
// publishes nothing.
#ifndef SDP_TOOLS_SDPSTAT_PROCESS_RULES_H_
#define SDP_TOOLS_SDPSTAT_PROCESS_RULES_H_

#include <string>

#include "preload/config_file.h"

namespace sdp::sdpstat {

// "/etc/sdp/libsdp.conf:2: use tcp server * *:*", with the client's rule behind it if that is another. Empty:
// a socket of this program may be SDP. `path`: the file's.
std::string RuleAgainstAll(const preload::ConfigFile& file, const std::string& path,
                           const std::string& program);

// The program's name as rules know it, of the text of /proc/PID/cmdline. `executable`: the name of its file,
// which counts if the process has written a title over its arguments.
std::string NameForRules(const std::string& arguments, const std::string& executable);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_PROCESS_RULES_H_
