// The registry from its file.
#ifndef SDP_PORTMAPPER_DAEMON_REGISTRY_FILE_H_
#define SDP_PORTMAPPER_DAEMON_REGISTRY_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "portmapper/engine/registry.h"

namespace sdp::pm {

// Reads `path` (empty: an empty registry) and adds what the command line has said (ParseServe). The error
// names file, line, column and what was expected, a line for each mistake.
[[nodiscard]] absl::StatusOr<Registry> LoadRegistry(const std::string& path, const Registry& serve);

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_REGISTRY_FILE_H_
