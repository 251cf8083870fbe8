// sdpstat doctor: what on this host, or on the way to another, would keep programs from SDP.
#ifndef SDP_TOOLS_SDPSTAT_DOCTOR_H_
#define SDP_TOOLS_SDPSTAT_DOCTOR_H_

#include <string>
#include <vector>

#include "tools/sdpstat/finding.h"

namespace sdp::sdpstat {

// `program`: one to look at too; empty: none. Makes a connection of its own over SDP, on 127.0.0.1.
std::vector<Finding> Examine(const std::string& program);
std::string RenderFindings(const std::vector<Finding>& findings);

// The command. `subject`: a program, or HOST:PORT, or empty. Exit status: 0 nothing is wrong, 1 something is.
int Doctor(const std::string& subject);

// For tests: what a configuration file's text gives rise to, for programs called `program` (empty: any).
std::vector<Finding> ExamineConfig(const std::string& path, const std::string& text,
                                   const std::string& program);

// For tests: of the text of /etc/ld.so.preload. Empty if it does not name the library.
std::vector<Finding> ExaminePreloadFile(const std::string& text);

}  // namespace sdp::sdpstat

#endif  // SDP_TOOLS_SDPSTAT_DOCTOR_H_
