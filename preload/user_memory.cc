#include "preload/user_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/socket/clock.h"

namespace sdp::preload {

constinit KnownPages readable_pages;
constinit KnownPages writable_pages;

void KnownPages::Add(uintptr_t page) {
  std::atomic<uint64_t>& block = blocks_[IndexOf(page)];
  const uint64_t number = page >> kBlockBits << kBlockBits;
  const uint64_t bit = uint64_t{1} << (page >> kPageBits & 15);
  uint64_t word = block.load(std::memory_order_relaxed);
  const uint64_t others = word >> kBlockBits << kBlockBits == number ? word : 0;
  block.compare_exchange_strong(word, number | others | bit,
                                std::memory_order_relaxed);  // the loser asks again
}

namespace {

constexpr uintptr_t kPage = 4096;

// Returns whether the address is in the first page, where null is, or in the last one.
bool IsNowhere(uintptr_t address) { return address + kPage < 2 * kPage; }

// The kernel copies the mask and then refuses the operation.
bool IsReadable(uintptr_t page) {
  constexpr int kNothing = -1;
  return syscall(SYS_rt_sigprocmask, kNothing, page, nullptr, sizeof(uint64_t)) == 0 || errno != EFAULT;
}

// The kernel atomically adds 0 to the word, and wakes no thread.
bool IsWritable(uintptr_t page) {
  static uint32_t nobody_waits = 0;
  constexpr uint32_t kAddNothing = static_cast<uint32_t>(FUTEX_OP_ADD) << 28 | FUTEX_OP_CMP_EQ << 24 | 0xfff;
  return syscall(SYS_futex, &nobody_waits, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, nullptr, page,
                 kAddNothing) >= 0 ||
         errno != EFAULT;
}

// How many pages may be asked about until the coarse clock's next tick.
constexpr int kQuestions = 512;
constinit std::atomic<int64_t> tick{0};
constinit std::atomic<int> questions{0};

bool MayAsk() {
  const int64_t now = CoarseNow().time_since_epoch().count();
  if (tick.exchange(now, std::memory_order_relaxed) != now) questions.store(0, std::memory_order_relaxed);
  return questions.fetch_add(1, std::memory_order_relaxed) < kQuestions;
}

template <typename Probe>
bool Ask(const void* memory, size_t size, KnownPages* known, Probe probe) {
  const auto first = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t last = first + size - 1;
  if (IsNowhere(first) || last < first) return false;
  if (Confined()) return true;
  const KeepErrno keep;
  bool there = true;
  for (uintptr_t page = first & ~(kPage - 1);; page += kPage) {
    const uintptr_t end = known->LastOfBlock(page, last);
    if (known->Has(page, end)) {
      page = end & ~(kPage - 1);
    } else if (!known->Has(page, page)) {
      if (!MayAsk()) break;
      there = probe(page);
      if (!there) {
        questions.fetch_sub(
            1, std::memory_order_relaxed);  // a bad address does not count: programs seldom pass one
        break;
      }
      known->Add(page);
    }
    if (last - page < kPage) break;
  }
  return there;
}

}  // namespace

bool AskToRead(const void* memory, size_t size) { return Ask(memory, size, &readable_pages, IsReadable); }

bool AskToWrite(void* memory, size_t size) { return Ask(memory, size, &writable_pages, IsWritable); }

bool MayReadString(const char* text) {
  for (;;) {
    const size_t rest = kPage - reinterpret_cast<uintptr_t>(text) % kPage;
    if (!MayRead(text, rest)) return false;
    if (std::memchr(text, '\0', rest) != nullptr) return true;
    text += rest;
  }
}

bool MayReadStrings(const char* const* list) {
  for (;; ++list) {
    if (!MayRead(list, sizeof *list)) return false;
    if (*list == nullptr) return true;
    if (!MayReadString(*list)) return false;
  }
}

}  // namespace sdp::preload
