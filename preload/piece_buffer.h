// A buffer for bytes that come from a file or a pipe.
#ifndef SDP_PRELOAD_PIECE_BUFFER_H_
#define SDP_PRELOAD_PIECE_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <new>

namespace sdp::preload {

// Owns kSize bytes, or none if memory ran out: check get(). One buffer is kept for the next call. A thread or
// signal handler that finds it taken allocates another.
class PieceBuffer {
 public:
  static constexpr size_t kSize = 128 * 1024;
  static constexpr size_t kAlignment = 4096;  // a file opened with O_DIRECT needs this alignment

  PieceBuffer() : memory_(spare.exchange(nullptr)) {
    if (memory_ == nullptr)
      memory_ = static_cast<char*>(::operator new (kSize, std::align_val_t{kAlignment}, std::nothrow));
  }
  ~PieceBuffer() { ::operator delete (spare.exchange(memory_), std::align_val_t{kAlignment}); }
  PieceBuffer(const PieceBuffer&) = delete;
  PieceBuffer& operator=(const PieceBuffer&) = delete;
  [[nodiscard]] char* get() const { return memory_; }

 private:
  static inline constinit std::atomic<char*> spare{nullptr};
  char* memory_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_PIECE_BUFFER_H_
