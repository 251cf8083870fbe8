// The library's own memory, behind the operators new and delete of libsdp.so (heap_operators.cc); nothing
// outside libsdp.so uses it. malloc would not do. A signal handler may call send, recv, poll and close
// (POSIX), and may have interrupted malloc with its lock taken and its lists half changed. Nothing here calls
// malloc, except behind a filter (see Stock). The one lock is a Mutex (critical.h), so no handler interrupts
// its owner.
//
// Memory comes from the kernel in units of 64 KiB, at multiples of 64 KiB. A slab is one unit of blocks of
// one size; there are sixteen sizes from one power of two to the next. A slab's pages are touched only when
// its blocks are first used. Requests beyond the longest block get units of their own. Returned units are
// kept, since fresh pages are slow. Trim() gives back what is not used.
#ifndef SDP_PRELOAD_HEAP_H_
#define SDP_PRELOAD_HEAP_H_

#include <cstddef>

namespace sdp::preload {

class Heap {
 public:
  // The alignment that operator new guarantees.
  static constexpr size_t kAlignment = 16;
  static constexpr size_t kMostAlignment = 32 * 1024;

  // Returns at least `size` bytes at a multiple of `alignment`, a power of two; null if there is no memory.
  // Works at any time, from the first instruction on.
  static void* Allocate(size_t size, size_t alignment = kAlignment) noexcept;
  // Null is allowed. Keeps errno.
  static void Free(void* memory) noexcept;

  // Gives the kernel the kept units that were spare all the time since the last call, except for 2 MiB.
  static void Trim();
  // Returns true if Trim() may have something to give, now or later. Needs no lock.
  [[nodiscard]] static bool HasSpare();

  // Call around a fork, in the forking thread; UnlockAfterFork() in both processes. No thread allocates
  // between them.
  static void LockForFork();
  static void UnlockAfterFork();

  // Call before a seccomp filter is set that may forbid mmap. Keeps some memory in stock; what is needed
  // beyond that comes from malloc.
  static void Stock();
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_HEAP_H_
