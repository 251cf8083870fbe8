// Memory that TCP is read into and that unsent payload is copied to: reference-counted chunks from a pool of
// the process.
//
// The pool is shared by all threads without a lock (so a fork at any moment leaves it usable) and hands out
// what came back last, which is what the cache still holds. A chunk itself belongs to one QueuePair, whose
// owner serialises its use.
#ifndef SDP_VERBS_SOFTIWARP_PROTO_CHUNK_POOL_H_
#define SDP_VERBS_SOFTIWARP_PROTO_CHUNK_POOL_H_

#include <cstddef>
#include <cstdint>

#include "core/base/types.h"

namespace sdp::iwarp {

inline constexpr uint32_t kSmallChunk = 16 * 1024;
inline constexpr uint32_t kMiddleChunk = 64 * 1024;
inline constexpr uint32_t kBigChunk = 256 * 1024;

struct alignas(64) Chunk {
  uint32_t capacity = 0;  // bytes at data()
  uint32_t refs = 0;
  // Neighbours in the ChunkSet it belongs to.
  Chunk* next = nullptr;
  Chunk** link = nullptr;
  [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

// At least `capacity` bytes, with one reference; nullptr when memory is short. Up to kBigChunk it comes from
// the pool.
[[nodiscard]] Chunk* TakeChunk(size_t capacity);
// The same with no room to spare: for what stays while its neighbours go.
[[nodiscard]] Chunk* TakeExactChunk(size_t capacity);
inline void RefChunk(Chunk* chunk) { ++chunk->refs; }
// The last reference gives the chunk back. nullptr is allowed.
void UnrefChunk(Chunk* chunk);

// The chunks that one receiver has out, lent or not: what is never released goes with it.
class ChunkSet {
 public:
  ChunkSet() = default;
  ChunkSet(const ChunkSet&) = delete;
  ChunkSet& operator=(const ChunkSet&) = delete;
  ~ChunkSet();
  [[nodiscard]] Chunk* Take(size_t capacity) { return Add(TakeChunk(capacity)); }
  [[nodiscard]] Chunk* TakeExact(size_t capacity) { return Add(TakeExactChunk(capacity)); }
  // As UnrefChunk, for a chunk of this set or nullptr.
  void Unref(Chunk* chunk);
  // What the chunks of this set occupy.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  Chunk* Add(Chunk* chunk);
  void Unlink(Chunk* chunk);
  Chunk* first_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_CHUNK_POOL_H_
