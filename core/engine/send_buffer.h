#ifndef SDP_CORE_ENGINE_SEND_BUFFER_H_
#define SDP_CORE_ENGINE_SEND_BUFFER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "core/base/types.h"

namespace sdp::engine {

// Accepted bytes that no message carries yet: a ring of bytes that grows from nothing up to a limit. An empty
// ring keeps its memory, because a stream of small writes fills it again at once. The owner calls Trim() when
// the stream has come to rest.
class SendBuffer {
 public:
  explicit SendBuffer(uint32_t limit) : limit_(limit) {}

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] size_t room() const { return size_ < limit_ ? limit_ - size_ : 0; }
  [[nodiscard]] size_t allocated() const { return capacity_; }

  // Copies as much of data[skip...] as there is room for, and returns how many bytes.
  size_t Append(std::span<const Bytes> data, size_t skip);
  // Appends all of `data`, beyond the limit if necessary.
  void AppendAll(Bytes data);
  // Inserts all of `data` before the bytes that are there, beyond the limit if necessary.
  void PrependAll(Bytes data);
  // Takes the `count` oldest bytes (at most size()) as one or two pieces, which stay readable until
  // Reclaim(). Returns the number of pieces.
  size_t Take(size_t count, std::array<Bytes, 2>* pieces);
  // Tells that the bytes taken are no longer referenced.
  void Reclaim();
  void Clear();
  // Frees the memory if it is empty and was not used since the last call.
  void Trim();

 private:
  friend struct Frozen;

  void Copy(std::span<const Bytes> data, size_t skip, size_t count);
  void Reserve(size_t size);

  uint32_t limit_;
  uint32_t capacity_ = 0;
  uint32_t head_ = 0;  // start of the untaken bytes
  uint32_t size_ = 0;
  uint32_t taken_ = 0;  // bytes before head_ that are still referenced
  bool used_ = false;   // since Trim()
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_SEND_BUFFER_H_
