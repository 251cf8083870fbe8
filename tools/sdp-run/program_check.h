// Whether a program can be preloaded, found out before it runs instead of silently doing nothing.
#ifndef SDP_TOOLS_SDP_RUN_PROGRAM_CHECK_H_
#define SDP_TOOLS_SDP_RUN_PROGRAM_CHECK_H_

#include <string>
#include <vector>

namespace sdp::run {

enum class Verdict {
  kFine,
  kNotFound,        // exit status 127
  kNotExecutable,   // 126
  kNotPreloadable,  // 126
};

struct Check {
  Verdict verdict = Verdict::kFine;
  std::string path;  // what would be executed
  std::string why;   // a sentence, for any verdict but kFine
  std::string code;  // kNotPreloadable: the reason's stable code (tools/why/reasons.h)
};

// Looks `arguments[0]` up as execvp does, follows "#!" lines (and "env NAME" in them) and reads the program's
// headers.
Check CheckProgram(const std::vector<std::string>& arguments);

// The path that execvp would run for `name`; empty if there is none.
std::string FindProgram(const std::string& name);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_PROGRAM_CHECK_H_
