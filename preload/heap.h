// The library's own memory, where libsdp.so has no other: behind its operators new and delete
// (heap_operators.cc), which nothing outside it uses. malloc would not do: send, recv, poll and close may be
// called in a signal handler (POSIX), which may have interrupted the program in the middle of malloc, with
// malloc's lock taken and its lists half changed. Nothing here calls malloc (but behind a filter, below), and
// the one lock is a Mutex (critical.h): no handler interrupts what is done with it.
//
// Memory comes from the kernel in units of 64 KiB, at addresses that are multiples of that. A slab is one
// unit of blocks of one size, sixteen sizes between a power of two and the next; pages are touched as blocks
// are first used. What is longer than the longest block has units for itself. A few units that came back are
// kept.
#ifndef SDP_PRELOAD_HEAP_H_
#define SDP_PRELOAD_HEAP_H_

#include <cstddef>

namespace sdp::preload {

class Heap {
 public:
  // What operator new has to give.
  static constexpr size_t kAlignment = 16;
  static constexpr size_t kMostAlignment = 32 * 1024;

  // At least `size` bytes, at a multiple of `alignment`, a power of two; null when there are none. At any
  // time, from the first instruction on.
  static void* Allocate(size_t size, size_t alignment = kAlignment) noexcept;
  // Null is allowed. errno stays as it is.
  static void Free(void* memory) noexcept;

  // Around a fork, in the thread that makes it; the latter on both sides. Between them nothing is allocated.
  static void LockForFork();
  static void UnlockAfterFork();

  // Before a seccomp filter is set that may forbid mmap: some memory to go on with. What is needed then and
  // is not there is malloc's.
  static void Stock();
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_HEAP_H_
