// Memory through which bytes pass that come from a file or a pipe.
#ifndef SDP_PRELOAD_PIECE_BUFFER_H_
#define SDP_PRELOAD_PIECE_BUFFER_H_

#include <atomic>
#include <cstddef>
#include <new>

namespace sdp::preload {

// kSize bytes, or none: ask get(). One is kept for the next call; a thread, or a signal handler, that finds
// it taken makes another.
class PieceBuffer {
 public:
  static constexpr size_t kSize = 128 * 1024;
  static constexpr size_t kAlignment = 4096;  // a file opened with O_DIRECT wants it

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
