// The unwinder is the process's own libgcc_s (unwind.cc). It is loaded when an exception is thrown, which is
// too late if memory has run out.
#ifndef SDP_PRELOAD_UNWIND_H_
#define SDP_PRELOAD_UNWIND_H_

#include "preload/confinement.h"
#include "preload/critical.h"

namespace sdp::preload {

// Loads libgcc_s, with the process's first socket; later calls cost a load. Returns false if it cannot be
// loaded, for want of memory: nothing may throw then. Null in a program that links the archives and has an
// unwinder of its own. Calls malloc, so not for handlers.
__attribute__((weak, visibility("hidden"))) bool PrepareUnwind();

// Returns false if an exception would end the process. A handler, and a process under a filter, load nothing:
// what they have is taken for enough.
inline bool MayThrow() {
  return PrepareUnwind == nullptr || Confined() || Critical::MayBeInHandler() || PrepareUnwind();
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_UNWIND_H_
