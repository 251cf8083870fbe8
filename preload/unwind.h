// The unwinder is the process's own libgcc_s (unwind.cc), which is loaded when something is thrown: too late
// where that is for want of memory.
#ifndef SDP_PRELOAD_UNWIND_H_
#define SDP_PRELOAD_UNWIND_H_

namespace sdp::preload {

// Has it found. With the process's first SDP connection or listener; later calls cost a load. Null in a
// program that links the archives, and unwinds by itself. Calls malloc, so not in a handler.
__attribute__((weak, visibility("hidden"))) void PrepareUnwind();

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_UNWIND_H_
