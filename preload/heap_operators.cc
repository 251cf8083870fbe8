// libsdp.so's operators new and delete, in place of those of the static libstdc++. The array forms and the
// sized forms call these. Test programs and libraries with a sanitizer do not link this file: they keep
// malloc, which finds their mistakes.
#include <new>

#include "preload/heap.h"

namespace {

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

using sdp::preload::Heap;

void* operator new(size_t size) { return OrThrow(Heap::Allocate(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return OrThrow(Heap::Allocate(size, static_cast<size_t>(alignment)));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Heap::Allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Heap::Allocate(size); }
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Heap::Allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { Heap::Free(memory); }
void operator delete(void* memory, size_t) noexcept { Heap::Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Heap::Free(memory); }
