// What the library would not understand of its configuration, said once by who starts the program.
#ifndef SDP_TOOLS_SDP_RUN_CONFIG_REPORT_H_
#define SDP_TOOLS_SDP_RUN_CONFIG_REPORT_H_

#include <string>
#include <vector>

#include "preload/config_file.h"

namespace sdp::run {

struct ConfigLook {
  std::string path;
  bool is_there = false;
  preload::ConfigFile file;
  std::vector<std::string> problems;  // one line each
};
// `lookup` and `environment` are as getenv and environ.
ConfigLook LookAtConfig(const preload::Lookup& lookup, const char* const* environment);

// At most `most` of the problems, and then a line that counts the others.
std::vector<std::string> Shortened(std::vector<std::string> problems, size_t most);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_CONFIG_REPORT_H_
