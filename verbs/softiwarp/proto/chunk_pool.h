// Reference-counted chunks of memory from a pool of the process. The link's read puts received bytes into
// chunks, and unsent payload is copied to them.
//
// All threads share the pool without a lock, so that a fork at any moment leaves it usable. The pool hands
// out the chunk that came back last, which the cache still holds. A chunk itself belongs to one QueuePair,
// whose owner serialises its use.
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
  // Neighbours in the ChunkSet that the chunk belongs to.
  Chunk* next = nullptr;
  Chunk** link = nullptr;
  [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

// Returns a chunk of at least `capacity` bytes, with one reference; nullptr if memory is short. Chunks of up
// to kBigChunk come from the pool.
[[nodiscard]] Chunk* TakeChunk(size_t capacity);
// Returns a chunk of exactly `capacity` bytes, for data that stays longer than the data around it.
[[nodiscard]] Chunk* TakeExactChunk(size_t capacity);
inline void RefChunk(Chunk* chunk) { ++chunk->refs; }
// Drops a reference; the last one gives the chunk back. nullptr is allowed.
void UnrefChunk(Chunk* chunk);

// The chunks that one receiver uses or has lent. Its destructor frees those that were never released.
class ChunkSet {
 public:
  ChunkSet() = default;
  ChunkSet(const ChunkSet&) = delete;
  ChunkSet& operator=(const ChunkSet&) = delete;
  ~ChunkSet();
  [[nodiscard]] Chunk* Take(size_t capacity) { return Add(TakeChunk(capacity)); }
  [[nodiscard]] Chunk* TakeExact(size_t capacity) { return Add(TakeExactChunk(capacity)); }
  // Like UnrefChunk, for a chunk of this set or nullptr.
  void Unref(Chunk* chunk);
  // Returns how many bytes the chunks of this set occupy.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  Chunk* Add(Chunk* chunk);
  void Unlink(Chunk* chunk);
  Chunk* first_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_CHUNK_POOL_H_
