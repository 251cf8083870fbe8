// Addresses at which no program has memory: null and its page, and the last one, which is what (void*)-1 names. The kernel answers EFAULT to
// them, and programs are known to pass them. Any other address that is not the program's is found out by a signal, as in the program's own code.
#ifndef SDP_PRELOAD_PROGRAM_MEMORY_H_
#define SDP_PRELOAD_PROGRAM_MEMORY_H_

#include <cstdint>

namespace sdp::preload {

inline bool IsNowhere(const void* address) {
  constexpr uintptr_t kPage = 4096;
  return reinterpret_cast<uintptr_t>(address) + kPage < 2 * kPage;
}

// The last page alone: the kernel refuses it before it looks at anything else, and whatever the length.
inline bool IsBeyond(const void* address) { return reinterpret_cast<uintptr_t>(address) > UINTPTR_MAX - 4096; }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_PROGRAM_MEMORY_H_
