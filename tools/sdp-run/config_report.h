// What the library would not understand of its configuration, said once by who starts the program.
#ifndef SDP_TOOLS_SDP_RUN_CONFIG_REPORT_H_
#define SDP_TOOLS_SDP_RUN_CONFIG_REPORT_H_

#include <string>
#include <vector>

#include "preload/config_file.h"

namespace sdp::run {

// One line for each problem; after `most` lines one that counts the others. `lookup` and `environment` are as
// getenv and environ.
std::vector<std::string> ConfigProblems(const preload::Lookup& lookup, const char* const* environment,
                                        size_t most);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_CONFIG_REPORT_H_
