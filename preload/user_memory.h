// The program's memory, before the library touches it: the kernel says EFAULT where there is none, and so do
// calls that read and write it themselves.
#ifndef SDP_PRELOAD_USER_MEMORY_H_
#define SDP_PRELOAD_USER_MEMORY_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sdp::preload {

// Which pages have been asked for and were there. Programs pass the same places again and again: asked of the
// kernel once, a page is taken to stay.
class KnownPages {
 public:
  [[nodiscard]] bool Has(uintptr_t first, uintptr_t last) const {
    return first <= last && first >> kBlockBits == last >> kBlockBits &&
           Holds(blocks_[IndexOf(first)].load(std::memory_order_relaxed), first, last);
  }
  // What Has() can answer at once, of what begins there and ends at `last`.
  static uintptr_t LastOfBlock(uintptr_t first, uintptr_t last) {
    return std::min(last, first | ((uintptr_t{1} << kBlockBits) - 1));
  }
  void Add(uintptr_t page);

 private:
  // A word: the number of a block of 16 pages, and a bit for each of its pages.
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

// What these say of pages that are not known, asked of the kernel. A program whose memory is new in every
// call is not to pay for that: beyond some hundred questions in a few milliseconds all is taken to be there,
// as it is behind a seccomp filter.
[[nodiscard]] bool AskToRead(const void* memory, size_t size);
[[nodiscard]] bool AskToWrite(void* memory, size_t size);

// The last page, which (void*)-1 names: the kernel refuses it before it looks at anything else, and whatever
// the length.
inline bool IsBeyond(const void* address) {
  return reinterpret_cast<uintptr_t>(address) > UINTPTR_MAX - 4096;
}

// True if all of it may be read; if all of it may be written to. Keep errno. No allocation, no lock.
[[nodiscard]] inline bool MayRead(const void* memory, size_t size) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  return size == 0 || readable_pages.Has(first, first + size - 1) || AskToRead(memory, size);
}
[[nodiscard]] inline bool MayWrite(void* memory, size_t size) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  return size == 0 || writable_pages.Has(first, first + size - 1) || AskToWrite(memory, size);
}

// A string with its end; a list of them with a null pointer at its end, as exec takes it.
[[nodiscard]] bool MayReadString(const char* text);
[[nodiscard]] bool MayReadStrings(const char* const* list);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_USER_MEMORY_H_
