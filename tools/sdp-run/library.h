// Finds libsdp.so and sdp-pmd where this program was built or installed.
#ifndef SDP_TOOLS_SDP_RUN_LIBRARY_H_
#define SDP_TOOLS_SDP_RUN_LIBRARY_H_

#include <string>

namespace sdp::run {

// Absolute paths; empty if there is none. Looked for relative to this executable: the build tree (../preload,
// ../portmapper), then an installed tree (../lib, ../lib/<triplet>, ../lib64, each also with sdp/; the daemon
// in the same directory, ../sbin, ../libexec/sdp).
std::string FindLibrary();
std::string FindDaemon();

// Whether that file is a shared object with the name of ours in it: another one would be loaded, and carry
// nothing.
bool LooksLikeOurs(const std::string& library);

// The value of LD_PRELOAD with `library` in front of what is there.
std::string PreloadWith(const std::string& library);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_LIBRARY_H_
