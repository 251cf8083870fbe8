// The program's name as it was when the program began. Many servers write a title over their arguments, and
// with it over what the C library calls the name (program_invocation_short_name).
#ifndef SDP_PRELOAD_PROGRAM_NAME_H_
#define SDP_PRELOAD_PROGRAM_NAME_H_

namespace sdp::preload {

// Returns the program's name without directories. It never changes, also not in the child of a fork.
const char* ProgramName();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_PROGRAM_NAME_H_
