// Builds a Config from the environment and the text of a libsdp.conf.
#ifndef SDP_PRELOAD_CONFIG_READER_H_
#define SDP_PRELOAD_CONFIG_READER_H_

#include <string>
#include <vector>

#include "preload/config.h"

namespace sdp::preload {

// An empty variable counts as unset; the file's setting of that name then holds. Each unusable value leaves
// the default and adds one line to `problems`, which names the variable or "<file_name>:<line>:<column>". A
// setting that no variable corresponds to adds a line, too. So does a variable of `environment` (may be null,
// otherwise as environ) that begins with SDP_ and means nothing.
Config ReadConfig(const Lookup& lookup, const ConfigFile& file, const std::string& file_name,
                  std::vector<std::string>* problems, const char* const* environment = nullptr);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_READER_H_
