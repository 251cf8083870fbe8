// Every call of calls.inc as a bare system call: for the rare moment when the C library's function cannot be
// looked up. Not cancellation points.
#ifndef SDP_PRELOAD_RAW_CALLS_H_
#define SDP_PRELOAD_RAW_CALLS_H_

#include "preload/real_calls.h"

namespace sdp::preload::raw {

#define SDP_CALL(result, name, parameters, exception) result name parameters;
#include "preload/calls.inc"

}  // namespace sdp::preload::raw

#endif  // SDP_PRELOAD_RAW_CALLS_H_
