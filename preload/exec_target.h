// Tells whether the loader will put this library into a program, before the program runs.
#ifndef SDP_PRELOAD_EXEC_TARGET_H_
#define SDP_PRELOAD_EXEC_TARGET_H_

#include <string>

namespace sdp::preload {

// Returns the file that execvp and its like would take for `file`, or `file` itself if there is none.
std::string FindProgram(const char* file);

enum class Target : unsigned char {
  kNone,         // there is no such program; exec says why
  kWithLibrary,  // a dynamic program of this machine, or a script for one, that gets the library from
                 // LD_PRELOAD or from the system's list
  kStranger,
};
// Returns what becomes of the program in `path`, or behind a descriptor, when it runs with this environment.
Target TargetOf(const std::string& path, char* const environment[]);
Target TargetOf(int fd, char* const environment[]);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_EXEC_TARGET_H_
