// Checks the program's memory before the library touches it. The kernel answers EFAULT for memory that is not
// there, and so do calls that the library implements itself. Lock-free; any thread may call.
#ifndef SDP_PRELOAD_USER_MEMORY_H_
#define SDP_PRELOAD_USER_MEMORY_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sdp::preload {

// Remembers pages that the kernel was asked about and that were there. Programs pass the same addresses again
// and again. A page is asked about once, and then taken to stay.
class KnownPages {
 public:
  [[nodiscard]] bool Has(uintptr_t first, uintptr_t last) const {
    return first <= last && first >> kBlockBits == last >> kBlockBits &&
           Holds(blocks_[IndexOf(first)].load(std::memory_order_relaxed), first, last);
  }
  // Returns the end, at most `last`, of what Has() can answer in one step from `first` on.
  static uintptr_t LastOfBlock(uintptr_t first, uintptr_t last) {
    return std::min(last, first | ((uintptr_t{1} << kBlockBits) - 1));
  }
  void Add(uintptr_t page);

 private:
  // Each word holds the number of a block of 16 pages, and a bit for each page.
  static constexpr int kPageBits = 12;
  static constexpr int kBlockBits = 16;
  static constexpr size_t kBlocks = 1024;

  static size_t IndexOf(uintptr_t address) { return (address >> kBlockBits) % kBlocks; }
  static bool Holds(uint64_t word, uintptr_t first, uintptr_t last) {
    constexpr uint64_t kPages = (1 << (kBlockBits - kPageBits)) - 1;
    const uint64_t from = first >> kPageBits & kPages;
    const uint64_t to = last >> kPageBits & kPages;
    const uint64_t wanted = (uint64_t{2} << to) - (uint64_t{1} << from);
    return word >> kBlockBits == first >> kBlockBits && (word & wanted) == wanted;
  }

  std::array<std::atomic<uint64_t>, kBlocks> blocks_{};
};
extern constinit KnownPages readable_pages;
extern constinit KnownPages writable_pages;

// Ask the kernel about unknown pages. After 512 questions within a tick of the coarse clock, and behind a
// seccomp filter, all memory is taken to be there. So a program with new memory in every call does not pay
// for the questions.
[[nodiscard]] bool AskToRead(const void* memory, size_t size);
[[nodiscard]] bool AskToWrite(void* memory, size_t size);

// Returns whether `address` is in the last page, as (void*)-1 is. The kernel refuses such an address before
// it looks at anything else, whatever the length.
inline bool IsBeyond(const void* address) {
  return reinterpret_cast<uintptr_t>(address) > UINTPTR_MAX - 4096;
}

// Return whether all of the memory can be read, or written. Keep errno. No allocation, no lock.
[[nodiscard]] inline bool MayRead(const void* memory, size_t size) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  return size == 0 || readable_pages.Has(first, first + size - 1) || AskToRead(memory, size);
}
[[nodiscard]] inline bool MayWrite(void* memory, size_t size) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  return size == 0 || writable_pages.Has(first, first + size - 1) || AskToWrite(memory, size);
}

// Check a string with its end, or a list of strings with its null pointer, as exec takes it.
[[nodiscard]] bool MayReadString(const char* text);
[[nodiscard]] bool MayReadStrings(const char* const* list);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_USER_MEMORY_H_
