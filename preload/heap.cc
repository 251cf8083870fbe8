#include "preload/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>

#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/fail.h"

namespace sdp::preload {
namespace {

constexpr size_t kUnit = 64 * 1024;
// The longest block. A small receive chunk (16 KiB and its head) fits, and three of them fit into a slab.
constexpr size_t kLongestBlock = 20 * 1024;
// The most returned units to keep: 16 MiB. Trim() leaves 2 MiB of them. Stock() adds some.
constexpr size_t kMostKept = 256;
constexpr size_t kKeptAtRest = 32;
constexpr size_t kUnitsStocked[] = {5, 5, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1};

// Sizes up to 512 are multiples of 16; above that there are sixteen sizes per power of two. So the blocks of
// a size that is a multiple of 32 or 64 are at multiples of 32 or 64.
constexpr size_t ClassOf(size_t size) {
  if (size <= 512) return (size - 1) / 16;
  const int bits = std::bit_width(size - 1);
  return static_cast<size_t>(bits - 10) * 16 + ((size - 1) >> (bits - 5)) + 16;
}
constexpr size_t LengthOf(size_t size) {
  const size_t step = size <= 512 ? 16 : size_t{1} << (std::bit_width(size - 1) - 5);
  return (size + step - 1) / step * step;
}
constexpr size_t kClasses = ClassOf(kLongestBlock) + 1;
static_assert(ClassOf(512) == 31 && ClassOf(513) == 32 && ClassOf(1024) == 47 && ClassOf(1025) == 48 &&
              LengthOf(513) == 544);

// Stands at the beginning of what comes from the kernel.
struct alignas(64) Head {
  size_t units = 0;
  Head* next = nullptr;  // in its list: slabs of its class that have room, or kept units
  Head** link = nullptr;
  // The length of a slab's blocks; 0: one single block.
  uint32_t length = 0;
  uint32_t used = 0;         // blocks
  uint32_t fresh = 0;        // the offset of the blocks that have never been used
  uint32_t group = 0;        // its class
  void* returned = nullptr;  // returned blocks; each begins with the next one's address

  [[nodiscard]] bool has_room() const { return returned != nullptr || fresh + length <= kUnit; }
};
static_assert(sizeof(Head) == 64);

constinit Mutex mutex;
constinit std::array<Head*, kClasses> with_room{};
constinit Head* kept = nullptr;
constinit std::atomic<size_t> units_kept = 0;  // written with the lock held
constinit size_t least_kept = 0;               // the fewest since the last Trim()
// False once a filter may forbid munmap, or the kernel allows no further mapping.
constinit std::atomic<bool> trims = true;
// The start of the last mapping. The next mapping is wanted right below it, where it is aligned and joins the
// last one.
constinit char* lowest = nullptr;

void Enter(Head* head, Head** list) {
  head->next = *list;
  head->link = list;
  if (*list != nullptr) (*list)->link = &head->next;
  *list = head;
}

void Leave(Head* head) {
  *head->link = head->next;
  if (head->next != nullptr) head->next->link = head->link;
}

bool IsAligned(const char* address) { return reinterpret_cast<uintptr_t>(address) % kUnit == 0; }

char* AskKernel(char* wish, size_t bytes) {
  void* const given = mmap(wish, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return given == MAP_FAILED ? nullptr : static_cast<char*>(given);
}

char* Map(size_t bytes) {
  if (!MayCall(Call::kMmap)) return static_cast<char*>(std::aligned_alloc(kUnit, bytes));
  char* given = AskKernel(lowest != nullptr ? lowest - bytes : nullptr, bytes);
  if (given != nullptr && !IsAligned(given)) {
    munmap(given, bytes);
    given = AskKernel(nullptr, bytes + kUnit);
    if (given == nullptr) return nullptr;
    const size_t before = (kUnit - reinterpret_cast<uintptr_t>(given) % kUnit) % kUnit;
    if (before != 0) munmap(given, before);
    munmap(given + before + bytes, kUnit - before);
    given += before;
  }
  if (given != nullptr) lowest = given;
  return given;
}

void LeaveKept(Head* head) {
  Leave(head);
  units_kept -= head->units;
}

// Takes kept units: a few more than wanted will do. With `any_more`, any larger number does.
Head* TakeKept(size_t units, bool any_more) {
  for (Head* head = kept; head != nullptr; head = head->next) {
    if (head->units < units || (head->units > units + units / 2 && !any_more)) continue;
    LeaveKept(head);
    least_kept = std::min<size_t>(least_kept, units_kept);
    return head;
  }
  return nullptr;
}

Head* TakeUnits(size_t units) {
  if (Head* const head = TakeKept(units, !MayCall(Call::kMmap))) return head;
  char* const memory = Map(units * kUnit);
  return memory != nullptr ? new (memory) Head{.units = units} : TakeKept(units, true);
}

void Keep(Head* head) {
  Enter(head, &kept);
  units_kept += head->units;
}

// Returns false if the kernel allows no further mapping: a hole splits one mapping into two.
bool Unmap(Head* head) { return munmap(head, head->units * kUnit) == 0; }

// Gives the kernel what has been kept longest. Returns how many units.
size_t UnmapOldest() {
  Head* oldest = kept;
  while (oldest->next != nullptr) oldest = oldest->next;
  LeaveKept(oldest);
  const size_t units = oldest->units;
  if (Unmap(oldest)) return units;
  Keep(oldest);
  return 0;
}

void GiveUnits(Head* head) {
  if (!MayCall(Call::kMmap) || !MayCall(Call::kMunmap)) return Keep(head);
  if (head->units > kMostKept / 2 && Unmap(head)) return;
  Keep(head);
  while (units_kept > kMostKept && UnmapOldest() != 0) {
  }
}

void* AllocateBlock(size_t size) {
  const size_t group = ClassOf(size);
  Head* slab = with_room[group];
  if (slab == nullptr) {
    slab = TakeUnits(1);
    if (slab == nullptr) return nullptr;
    slab->length = static_cast<uint32_t>(LengthOf(size));
    slab->group = static_cast<uint32_t>(group);
    slab->used = 0;
    slab->fresh = sizeof(Head);
    slab->returned = nullptr;
    Enter(slab, &with_room[group]);
  }
  void* block = slab->returned;
  if (block != nullptr) {
    slab->returned = *static_cast<void**>(block);
  } else {
    block = reinterpret_cast<char*>(slab) + slab->fresh;
    slab->fresh += slab->length;
  }
  ++slab->used;
  if (!slab->has_room()) Leave(slab);
  return block;
}

void FreeBlock(Head* slab, void* block) {
  const bool had_room = slab->has_room();
  *static_cast<void**>(block) = slab->returned;
  slab->returned = block;
  if (!had_room) Enter(slab, &with_room[slab->group]);
  // The class's last slab with room stays. Otherwise a block that is taken and returned again and again would
  // take its slab along each time.
  if (--slab->used > 0 || (with_room[slab->group] == slab && slab->next == nullptr)) return;
  Leave(slab);
  GiveUnits(slab);
}

void* AllocateUnits(size_t size, size_t alignment) {
  const size_t before = std::max(sizeof(Head), alignment);
  Head* const head = TakeUnits((before + size + kUnit - 1) / kUnit);
  if (head == nullptr) return nullptr;
  head->length = 0;
  return reinterpret_cast<char*>(head) + before;
}

}  // namespace

void* Heap::Allocate(size_t size, size_t alignment) noexcept {
  if (alignment > kMostAlignment || size > PTRDIFF_MAX - 2 * kUnit) return nullptr;
  const size_t whole = (std::max<size_t>(size, 1) + alignment - 1) & ~(alignment - 1);
  const std::lock_guard lock(mutex);
  return whole <= kLongestBlock && alignment <= sizeof(Head) ? AllocateBlock(whole)
                                                             : AllocateUnits(whole, alignment);
}

void Heap::Free(void* memory) noexcept {
  if (memory == nullptr) return;
  auto* const head = reinterpret_cast<Head*>(reinterpret_cast<uintptr_t>(memory) & ~(kUnit - 1));
  const KeepErrno keep;
  const std::lock_guard lock(mutex);
  head->length != 0 ? FreeBlock(head, memory) : GiveUnits(head);
}

void Heap::Trim() {
  std::unique_lock lock(mutex);
  size_t spare = least_kept;
  while (trims && spare > kKeptAtRest && units_kept > kKeptAtRest) {
    const size_t given = UnmapOldest();
    if (given == 0) trims = false;
    spare -= std::min(spare, given);
    lock.unlock();  // other threads go first
    lock.lock();
  }
  least_kept = units_kept;
}

bool Heap::HasSpare() {
  return units_kept.load(std::memory_order_relaxed) > kKeptAtRest && trims.load(std::memory_order_relaxed);
}

void Heap::LockForFork() { mutex.lock(); }
void Heap::UnlockAfterFork() { mutex.unlock(); }

void Heap::Stock() {
  const std::lock_guard lock(mutex);
  trims = false;
  for (const size_t units : kUnitsStocked) {
    if (char* const memory = Map(units * kUnit)) Keep(new (memory) Head{.units = units});
  }
}

}  // namespace sdp::preload
