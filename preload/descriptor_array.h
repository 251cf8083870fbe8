// One atomic word for every possible descriptor number: two levels, zero until stored to, never freed.
#ifndef SDP_PRELOAD_DESCRIPTOR_ARRAY_H_
#define SDP_PRELOAD_DESCRIPTOR_ARRAY_H_

#include <sys/mman.h>

#include <atomic>

namespace sdp::preload {

// A static object: it is constant-initialized, so that it works before constructors run, and never destroyed.
// Look-ups take no lock and make no system call. The first store beyond number 32767 maps a page. All-zero
// bits must be a valid Word.
//
// Neighbouring numbers lie in different cache lines, so two threads that work on descriptors 5 and 6 do not
// slow each other down. Numbers that differ by nine or more share lines, so a page has hundreds of numbers.
template <typename Word>
class DescriptorArray {
 public:
  constexpr DescriptorArray() = default;

  // Returns null if nothing was ever stored near `fd`, or if `fd` is no descriptor number.
  std::atomic<Word>* Find(int fd) {
    Page* page = FindPage(fd);
    return page != nullptr ? &page->words[Index(fd)] : nullptr;
  }
  // Returns the lowest number from `fd` (not negative) on that Find may know. For a walk through up to a
  // billion numbers.
  int SkipAbsent(int fd) {
    while (fd < kPages * kPageNumbers - kPageNumbers && FindPage(fd) == nullptr)
      fd = (fd / kPageNumbers + 1) * kPageNumbers;
    return fd;
  }
  // Like Find, but makes room. Returns null only if `fd` is out of range or the kernel has no memory left.
  std::atomic<Word>* FindOrAdd(int fd) {
    if (fd < 0 || fd >= kPages * kPageNumbers) return nullptr;
    Page* page = FindPage(fd);
    if (page == nullptr) page = AddPage(fd / kPageNumbers);
    return page != nullptr ? &page->words[Index(fd)] : nullptr;
  }

 private:
  static constexpr int kPageNumbers = 1 << 15;
  static constexpr int kPages = 1 << 15;  // 2^30 numbers, the most a kernel can allow
  static constexpr unsigned kWordsPerLine = 64 / sizeof(std::atomic<Word>);

  struct Page {
    std::atomic<Word> words[kPageNumbers];
  };

  // Twice the place in the line changes the line's number. So neighbours lie in two lines, also the last
  // number of one line and the first of the next.
  static unsigned Index(int fd) {
    const unsigned number = static_cast<unsigned>(fd) % kPageNumbers;
    return number ^ (number % kWordsPerLine * kWordsPerLine * 2);
  }

  Page* FindPage(int fd) {
    const unsigned page = static_cast<unsigned>(fd) / kPageNumbers;
    if (page == 0) return &first_;
    return page < kPages ? pages_[page].load(std::memory_order_acquire) : nullptr;
  }

  Page* AddPage(int number) {
    void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    Page* page = static_cast<Page*>(memory);
    Page* expected = nullptr;
    if (pages_[number].compare_exchange_strong(expected, page, std::memory_order_acq_rel)) return page;
    munmap(memory, sizeof(Page));
    return expected;
  }

  Page first_{};
  std::atomic<Page*> pages_[kPages]{};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_DESCRIPTOR_ARRAY_H_
