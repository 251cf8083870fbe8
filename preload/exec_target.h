// What is known of a program before it runs: will the loader put this library into it?
#ifndef SDP_PRELOAD_EXEC_TARGET_H_
#define SDP_PRELOAD_EXEC_TARGET_H_

#include <string>

namespace sdp::preload {

// The file that execvp and its like would take for `file`; `file` itself if there is none.
std::string FindProgram(const char* file);

enum class Target : unsigned char {
  kNone,         // exec will say why
  kWithLibrary,  // a dynamic program of this machine, or a script for one, that LD_PRELOAD, or the system's
                 // list, gives the library to
  kStranger,
};
// What becomes of the program in `path`, or behind a descriptor, when it is run with this environment.
Target TargetOf(const std::string& path, char* const environment[]);
Target TargetOf(int fd, char* const environment[]);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_EXEC_TARGET_H_
