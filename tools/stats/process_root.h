// Files as another process names them: below its root directory, which may be a container's.
#ifndef SDP_TOOLS_STATS_PROCESS_ROOT_H_
#define SDP_TOOLS_STATS_PROCESS_ROOT_H_

#include <cstdint>
#include <string>

#include "tools/stats/process_file.h"

namespace sdp::stats {

// Opens `path` below the root of the process. No link in it leads out of there. Invalid (-1): it cannot be
// opened.
OwnedFd OpenBelowRoot(uint32_t pid, const std::string& path, int flags);

// The text of a regular file there, at most `limit` bytes of it; empty if there is none.
std::string ReadBelowRoot(uint32_t pid, const std::string& path, size_t limit);

}  // namespace sdp::stats

#endif  // SDP_TOOLS_STATS_PROCESS_ROOT_H_
