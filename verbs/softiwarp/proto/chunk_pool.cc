#include "verbs/softiwarp/proto/chunk_pool.h"

#include <array>
#include <atomic>
#include <new>

#include "core/base/check.h"

namespace sdp::iwarp {
namespace {

// A shelf of idle chunks of one size. One atomic exchange takes or fills a place.
template <size_t kPlaces>
class Shelf {
 public:
  Chunk* Take() {
    for (auto& place : places_) {
      if (place.load(std::memory_order_relaxed) == nullptr) continue;
      if (Chunk* chunk = place.exchange(nullptr, std::memory_order_acquire)) return chunk;
    }
    return nullptr;
  }
  bool Put(Chunk* chunk) {
    for (auto& place : places_) {
      Chunk* empty = nullptr;
      if (place.load(std::memory_order_relaxed) == nullptr &&
          place.compare_exchange_strong(empty, chunk, std::memory_order_release, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

 private:
  std::array<std::atomic<Chunk*>, kPlaces> places_{};
};

// The most that an idle process keeps: 512 KiB of small, 1 MiB of middle and 2 MiB of big chunks.
constinit Shelf<32> small_shelf;
constinit Shelf<16> middle_shelf;
constinit Shelf<8> big_shelf;

Chunk* Allocate(size_t capacity) {
  if (capacity > UINT32_MAX) return nullptr;
  const size_t whole = (sizeof(Chunk) + capacity + alignof(Chunk) - 1) / alignof(Chunk) * alignof(Chunk);
  void* memory = ::operator new (whole, std::align_val_t{alignof(Chunk)}, std::nothrow);
  if (memory == nullptr) return nullptr;
  return new (memory) Chunk{.capacity = static_cast<uint32_t>(capacity), .refs = 1};
}

}  // namespace

Chunk* TakeChunk(size_t capacity) {
  Chunk* chunk = nullptr;
  if (capacity <= kSmallChunk) {
    capacity = kSmallChunk;
    chunk = small_shelf.Take();
  } else if (capacity <= kMiddleChunk) {
    capacity = kMiddleChunk;
    chunk = middle_shelf.Take();
  } else if (capacity <= kBigChunk) {
    capacity = kBigChunk;
    chunk = big_shelf.Take();
  }
  if (chunk == nullptr) return Allocate(capacity);
  chunk->refs = 1;
  return chunk;
}

Chunk* TakeExactChunk(size_t capacity) { return Allocate(capacity); }

void UnrefChunk(Chunk* chunk) {
  if (chunk == nullptr) return;
  SDP_DCHECK(chunk->refs > 0);
  if (--chunk->refs > 0) return;
  if (chunk->capacity == kSmallChunk && small_shelf.Put(chunk)) return;
  if (chunk->capacity == kMiddleChunk && middle_shelf.Put(chunk)) return;
  if (chunk->capacity == kBigChunk && big_shelf.Put(chunk)) return;
  ::operator delete (chunk, std::align_val_t{alignof(Chunk)});
}

ChunkSet::~ChunkSet() {
  while (first_ != nullptr) {
    first_->refs = 1;
    Unref(first_);
  }
}

Chunk* ChunkSet::Add(Chunk* chunk) {
  if (chunk == nullptr) return nullptr;
  bytes_ += sizeof(Chunk) + chunk->capacity;
  chunk->next = first_;
  chunk->link = &first_;
  if (first_ != nullptr) first_->link = &chunk->next;
  first_ = chunk;
  return chunk;
}

void ChunkSet::Unref(Chunk* chunk) {
  if (chunk == nullptr) return;
  if (chunk->refs == 1) Unlink(chunk);
  UnrefChunk(chunk);
}

void ChunkSet::Unlink(Chunk* chunk) {
  bytes_ -= sizeof(Chunk) + chunk->capacity;
  *chunk->link = chunk->next;
  if (chunk->next != nullptr) chunk->next->link = chunk->link;
}

}  // namespace sdp::iwarp
