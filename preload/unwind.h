// The unwinder is the process's own libgcc_s (unwind.cc). It is loaded when an exception is thrown, which is
// too late if memory has run out.
#ifndef SDP_PRELOAD_UNWIND_H_
#define SDP_PRELOAD_UNWIND_H_

namespace sdp::preload {

// Loads libgcc_s, with the process's first SDP connection or listener; later calls cost a load. Null in a
// program that links the archives and has an unwinder of its own. Calls malloc, so not for handlers.
__attribute__((weak, visibility("hidden"))) void PrepareUnwind();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_UNWIND_H_
