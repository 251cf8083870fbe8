// From the environment and the text of a libsdp.conf to a Config.
#ifndef SDP_PRELOAD_CONFIG_READER_H_
#define SDP_PRELOAD_CONFIG_READER_H_

#include <string>
#include <vector>

#include "preload/config.h"

namespace sdp::preload {

// An empty value counts as unset; then the file's setting of that name holds. Each value that cannot be used
// leaves the default and adds one line, which names the variable or "<file_name>:<line>:<column>", to
// `problems`; so does a setting that no variable corresponds to.
Config ReadConfig(const Lookup& lookup, const ConfigFile& file, const std::string& file_name,
                  std::vector<std::string>* problems);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_READER_H_
