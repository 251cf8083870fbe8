#include "preload/heap.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace sdp::preload {
namespace {

struct Block {
  unsigned char* memory = nullptr;
  size_t size = 0;
  unsigned char mark = 0;
};

Block Take(size_t size, size_t alignment, unsigned mark) {
  auto* const memory = static_cast<unsigned char*>(Heap::Allocate(size, alignment));
  if (memory != nullptr) std::memset(memory, static_cast<int>(mark), size);
  return {memory, size, static_cast<unsigned char>(mark)};
}

// False if somebody else has written there.
bool Return(const Block& block) {
  const bool whole =
      std::all_of(block.memory, block.memory + block.size, [&](unsigned char c) { return c == block.mark; });
  Heap::Free(block.memory);
  return whole;
}

// A sanitizer takes memory of its own, and more than the limits of these tests.
void LimitMemory([[maybe_unused]] rlim_t bytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  setrlimit(RLIMIT_DATA, &limit);
#endif
}

// Short ones mostly.
size_t AnySize(std::minstd_rand& random) { return random() % (size_t{1} << random() % 19); }

TEST_CASE("Blocks of every size are apart from each other and aligned") {
  std::minstd_rand random(1);
  std::vector<Block> blocks;
  bool aligned = true;
  const auto take = [&](size_t size, size_t alignment) {
    blocks.push_back(Take(size, alignment, static_cast<unsigned>(blocks.size())));
    aligned = aligned && blocks.back().memory != nullptr &&
              reinterpret_cast<uintptr_t>(blocks.back().memory) % alignment == 0;
  };
  for (size_t size = 0; size < 2100; ++size) take(size, Heap::kAlignment);
  for (size_t power = 2048; power <= (1 << 20); power *= 2) {
    for (const size_t size :
         {power - 64, power - 1, power, power + 1, power + 64, power / 4 * 5, power / 4 * 5 + 1})
      take(size, Heap::kAlignment);
  }
  for (size_t alignment = 1; alignment <= Heap::kMostAlignment; alignment *= 2) {
    for (const size_t size : {1, 24, 40, 100, 200, 5000, 70'000}) take(size, alignment);
  }
  REQUIRE(aligned);
  std::shuffle(blocks.begin(), blocks.end(), random);
  CHECK(std::all_of(blocks.begin(), blocks.end(), Return));
}

TEST_CASE("What came back is given again, and nothing grows") {
  void* const first = Heap::Allocate(100);
  Heap::Free(first);
  CHECK(Heap::Allocate(100) == first);
  Heap::Free(first);
  Heap::Free(nullptr);
  // In a process that may not have much more than it needs at once.
  const pid_t pid = fork();
  if (pid == 0) {
    const auto all_once = [] {
      std::minstd_rand random(2);
      std::vector<Block> blocks(3000);
      bool whole = true;
      for (Block& block : blocks) {
        block = Take(AnySize(random), Heap::kAlignment, random());
        whole = whole && block.memory != nullptr;
      }
      for (const Block& block : blocks) whole = Return(block) && whole;
      return whole;
    };
    bool whole = all_once();
    LimitMemory(256 << 20);
    for (int i = 0; i < 20; ++i) whole = all_once() && whole;
    _exit(whole ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}

// Returns how many of the pages that hold `blocks` are in memory.
int PagesOf(const std::vector<void*>& blocks, size_t size) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  int resident = 0;
  for (void* const block : blocks) {
    const auto begin = reinterpret_cast<uintptr_t>(block) / page * page;
    std::vector<unsigned char> in_memory(size / page);
    // A range that is not mapped any more has no page in memory.
    if (mincore(reinterpret_cast<void*>(begin), size, in_memory.data()) != 0) continue;
    resident += static_cast<int>(std::count(in_memory.begin(), in_memory.end(), 1));
  }
  return resident;
}

TEST_CASE("Memory that was spare from one trim to the next goes back to the kernel, and no other") {
  constexpr size_t kSize = 256 << 10;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<void*> blocks;
  for (int i = 0; i < 32; ++i) {
    blocks.push_back(Heap::Allocate(kSize));
    REQUIRE(blocks.back() != nullptr);
    std::memset(blocks.back(), 1, kSize);
  }
  for (void* const block : blocks) Heap::Free(block);
  const int all = static_cast<int>(32 * (kSize / page));
  CHECK(PagesOf(blocks, kSize) > all * 9 / 10);
  CHECK(Heap::HasSpare());
  Heap::Trim();
  CHECK(PagesOf(blocks, kSize) > all * 9 / 10);  // it was in use a moment ago
  for (int i = 0; i < 3; ++i) {                  // half of it is used again and again
    std::vector<void*> again;
    for (int j = 0; j < 16; ++j) again.push_back(Heap::Allocate(kSize));
    for (void* const block : again) Heap::Free(block);
    Heap::Trim();
    CHECK(PagesOf(blocks, kSize) > all * 4 / 10);
    CHECK(PagesOf(blocks, kSize) < all * 8 / 10);
  }
  Heap::Trim();
  CHECK_FALSE(Heap::HasSpare());
  CHECK(PagesOf(blocks, kSize) < all * 4 / 10);
}

TEST_CASE("What is beyond all memory is null") {
  CHECK(Heap::Allocate(SIZE_MAX) == nullptr);
  CHECK(Heap::Allocate(PTRDIFF_MAX) == nullptr);
  CHECK(Heap::Allocate(16, 2 * Heap::kMostAlignment) == nullptr);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("What is not to be had is null, and the rest stays usable") {
  const pid_t pid = fork();
  if (pid == 0) {
    LimitMemory(1 << 20);
    static std::array<void*, 100'000> blocks;
    size_t count = 0;
    while (count < blocks.size() && (blocks[count] = Heap::Allocate(1000)) != nullptr) ++count;
    if (count == blocks.size() || Heap::Allocate(100'000) != nullptr) _exit(1);
    for (size_t i = 0; i < count; ++i) Heap::Free(blocks[i]);
    _exit(count == 0 || Heap::Allocate(1000) != nullptr ? 0 : 2);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}

#endif

TEST_CASE("Giving back leaves errno alone") {
  std::array<void*, 20> blocks{};
  for (void*& block : blocks) block = Heap::Allocate(1 << 20);
  errno = EXDEV;
  for (void* const block : blocks) Heap::Free(block);
  CHECK(errno == EXDEV);
}

// Takes and gives back by turns, what it or another thread has taken.
class Exchange {
 public:
  explicit Exchange(unsigned seed) : random_(seed) {}
  bool Step() {
    const Block block = Take(AnySize(random_), Heap::kAlignment, random_());
    auto* const mine = new (Heap::Allocate(sizeof(Block))) Block(block);
    return Drop(shelf[random_() % shelf.size()].exchange(mine)) && block.memory != nullptr;
  }
  static bool Drop(Block* block) {
    const bool whole = block == nullptr || Return(*block);
    Heap::Free(block);
    return whole;
  }
  static bool Clear() {
    bool whole = true;
    for (auto& place : shelf) whole = Drop(place.exchange(nullptr)) && whole;
    return whole;
  }

 private:
  static inline std::array<std::atomic<Block*>, 200> shelf{};
  std::minstd_rand random_;
};

TEST_CASE("Threads take and give back each other's blocks, and one of them forks") {
  std::atomic<bool> over{false};
  std::atomic<bool> whole{true};
  std::vector<std::thread> threads;
  for (unsigned i = 1; i <= 3; ++i) {
    threads.emplace_back([&, i] {
      Exchange exchange(i);
      while (!over) {
        if (!exchange.Step()) whole = false;
      }
    });
  }
  Exchange exchange(10);
  int in_order = 0;
  for (int i = 0; i < 30; ++i) {
    for (int step = 0; step < 100; ++step) {
      if (!exchange.Step()) whole = false;
    }
    Heap::LockForFork();
    const pid_t pid = fork();
    Heap::UnlockAfterFork();
    if (pid == 0) {
      bool fine = true;
      for (int step = 0; step < 300; ++step) {
        void* const one = Heap::Allocate(static_cast<size_t>(step) * 100);
        fine = fine && one != nullptr;
        Heap::Free(one);
      }
      _exit(fine ? 0 : 1);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) == pid && status == 0) ++in_order;
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(in_order == 30);
  CHECK(Exchange::Clear());
  CHECK(whole);
}

}  // namespace
}  // namespace sdp::preload
