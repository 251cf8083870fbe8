// Builds a Config from the environment and the text of a libsdp.conf.
#ifndef SDP_PRELOAD_CONFIG_READER_H_
#define SDP_PRELOAD_CONFIG_READER_H_

#include <string>
#include <vector>

#include "preload/config.h"

namespace sdp::preload {

// An empty variable counts as unset; the file's setting of that name then holds. Each unusable value leaves
// the default and adds one line to `problems`, which names the variable or "<file_name>:<line>:<column>". A
// setting that no variable corresponds to adds a line, too.
Config ReadConfig(const Lookup& lookup, const ConfigFile& file, const std::string& file_name,
                  std::vector<std::string>* problems);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_CONFIG_READER_H_
