// Memory that a program has passed for an answer: the kernel says EFAULT where it is not there, and so do calls that write to it themselves.
#ifndef SDP_PRELOAD_USER_MEMORY_H_
#define SDP_PRELOAD_USER_MEMORY_H_

#include <cstddef>

namespace sdp::preload {

// True if all of it may be read and written. Programs pass the same places again and again: asked of the kernel once, a place is taken to stay. Keeps
// errno. No allocation, no lock.
[[nodiscard]] bool MayWrite(void* memory, size_t size);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_USER_MEMORY_H_
