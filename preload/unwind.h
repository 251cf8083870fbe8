// The unwinder is the process's own libgcc_s (unwind.cc). When an exception is thrown, it is too late to load
// it if memory has run out.
#ifndef SDP_PRELOAD_UNWIND_H_
#define SDP_PRELOAD_UNWIND_H_

#include "preload/confinement.h"
#include "preload/critical.h"

namespace sdp::preload {

// Returns true if libgcc_s is loaded, or could be: `load` has it loaded. Else an exception ends the process.
// Null in a program that links the archives and has an unwinder of its own. Loading calls malloc, so it is
// not for handlers.
__attribute__((weak, visibility("hidden"))) bool HasUnwinder(bool load);

// Returns false if an exception would end the process. Not for handlers.
inline bool LoadUnwinder() { return HasUnwinder == nullptr || HasUnwinder(/*load=*/true); }

// Loads libgcc_s, unless this process is in a handler or under a filter.
inline void PrepareToThrow() {
  if (HasUnwinder == nullptr || HasUnwinder(/*load=*/false) || Confined() || Critical::MayBeInHandler())
    return;
  (void)HasUnwinder(/*load=*/true);
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_UNWIND_H_
