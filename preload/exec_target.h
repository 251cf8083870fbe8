// What is known of a program before it runs: will the loader put this library into it?
#ifndef SDP_PRELOAD_EXEC_TARGET_H_
#define SDP_PRELOAD_EXEC_TARGET_H_

#include <string>

namespace sdp::preload {

// The file that execvp and its like would take for `file`; `file` itself if there is none.
std::string FindProgram(const char* file);

// True if the program in `path`, with this environment, comes up with the library: a dynamic program of this machine (or a script for one)
// that is not run with other privileges, and LD_PRELOAD, or the system's list, names the library.
bool WillLoadLibrary(const std::string& path, char* const environment[]);
// The same of the file behind a descriptor.
bool WillLoadLibrary(int fd, char* const environment[]);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_EXEC_TARGET_H_
