// From the environment to a Config.
#ifndef SDP_PRELOAD_CONFIG_READER_H_
#define SDP_PRELOAD_CONFIG_READER_H_

#include <string>
#include <vector>

#include "preload/config.h"

namespace sdp::preload {

// `lookup`: as getenv. An empty value counts as unset. Each value that cannot be used leaves the default and
// adds one line, which names the variable, to `problems`.
Config ReadConfig(const char* (*lookup)(const char* name), std::vector<std::string>* problems);

// What reading the process's own environment for config() complained about.
const std::vector<std::string>& ConfigProblems();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_READER_H_
